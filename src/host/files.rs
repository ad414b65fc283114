//! Files of the state directory: atomic writes, modes.
