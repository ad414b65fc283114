//! The bucket: probe.
/// stub
pub async fn run(_b: &dyn super::Bucket) -> Result<Vec<String>, crate::core::node::Trouble> { Ok(Vec::new()) }
