//! The few header fields of a packet that the mesh looks at.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Where a packet comes from and goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Addresses {
    /// The source.
    pub source: IpAddr,
    /// The destination.
    pub destination: IpAddr,
}

/// Reads the addresses of an IP packet; `None` for anything that is none, or too short to be one.
pub fn addresses(packet: &[u8]) -> Option<Addresses> {
    match packet.first()? >> 4 {
        4 if packet.len() >= 20 => {
            let at = |from: usize| {
                Some(IpAddr::V4(Ipv4Addr::from(
                    <[u8; 4]>::try_from(packet.get(from..from + 4)?).ok()?,
                )))
            };
            Some(Addresses {
                source: at(12)?,
                destination: at(16)?,
            })
        }
        6 if packet.len() >= 40 => {
            let at = |from: usize| {
                Some(IpAddr::V6(Ipv6Addr::from(
                    <[u8; 16]>::try_from(packet.get(from..from + 16)?).ok()?,
                )))
            };
            Some(Addresses {
                source: at(8)?,
                destination: at(24)?,
            })
        }
        _ => None,
    }
}

/// What kind of WireGuard message a datagram is, by its first four bytes (WireGuard paper, section 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Message {
    /// The first message of a handshake.
    Initiation,
    /// The second one, for the session with this index.
    Response(u32),
    /// A cookie for a handshake that was refused under load, for the session with this index.
    Cookie(u32),
    /// Transport data for the session with this index.
    Data(u32),
}

/// Reads the kind of a datagram; `None` for anything that is no WireGuard message, by type or size.
pub fn message(datagram: &[u8]) -> Option<Message> {
    let word = |from: usize| {
        Some(u32::from_le_bytes(
            <[u8; 4]>::try_from(datagram.get(from..from + 4)?).ok()?,
        ))
    };
    match (word(0)?, datagram.len()) {
        (1, 148) => Some(Message::Initiation),
        (2, 92) => Some(Message::Response(word(8)?)),
        (3, 64) => Some(Message::Cookie(word(4)?)),
        (4, 32..) => Some(Message::Data(word(4)?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn both_families_are_read() {
        let mut v4 = [0u8; 20];
        v4[0] = 0x45;
        v4[12..16].copy_from_slice(&[10, 88, 0, 1]);
        v4[16..20].copy_from_slice(&[10, 88, 0, 2]);
        let found = addresses(&v4).unwrap();
        assert_eq!(
            (found.source.to_string(), found.destination.to_string()),
            ("10.88.0.1".into(), "10.88.0.2".into())
        );
        let mut v6 = [0u8; 40];
        v6[0] = 0x60;
        v6[23] = 1;
        v6[39] = 2;
        let found = addresses(&v6).unwrap();
        assert_eq!(
            (found.source.to_string(), found.destination.to_string()),
            ("::1".into(), "::2".into())
        );
        assert_eq!(addresses(&v4[..19]), None);
        assert_eq!(addresses(&v6[..39]), None);
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = addresses(&bytes);
            let _ = message(&bytes);
        }
    }
}
