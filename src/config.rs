//! The typed configuration: file, environment and flags with the origin of each value (design, sections 4 and 5).
