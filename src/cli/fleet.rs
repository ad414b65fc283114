//! `scafo fleet`: the fleet as the bucket has it.

pub mod nodes;
