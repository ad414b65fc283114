//! What a node keeps in its state directory (design, section 3).
