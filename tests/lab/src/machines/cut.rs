//! Partitions and loss, made by nftables on the machine's port of the bridge.

use std::fmt::Write;
use std::fs;
use std::net::IpAddr;

use super::{Machine, PATIENCE, held, run_within};

/// What no longer passes between a machine and the rest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Everything, address resolution included: the cable is out, and the link still looks fine.
    Everything,
    /// What goes to or comes from this underlay address.
    Address(IpAddr),
    /// UDP and TCP that have this port at either end.
    Port(u16),
    /// This share of the packets, at random.
    Loss {
        /// 0 to 100.
        percent: u8,
    },
}

/// In which direction, as the machine sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// What reaches the machine.
    Incoming,
    /// What leaves it.
    Outgoing,
}

impl Machine {
    /// Cuts in both directions, in addition to what is cut already.
    pub fn cut(&self, cut: Cut) {
        held(&self.shared.cuts).extend([(Direction::Incoming, cut), (Direction::Outgoing, cut)]);
        self.apply_cuts();
    }

    /// Cuts in one direction only.
    pub fn cut_one_way(&self, direction: Direction, cut: Cut) {
        held(&self.shared.cuts).push((direction, cut));
        self.apply_cuts();
    }

    /// Cuts between this machine and another.
    pub fn cut_from(&self, other: &Machine) {
        self.cut(Cut::Address(other.address().into()));
    }

    /// Mends every cut of this machine.
    pub fn heal(&self) {
        held(&self.shared.cuts).clear();
        self.apply_cuts();
    }

    fn apply_cuts(&self) {
        let rules = render(&self.shared.port, &held(&self.shared.cuts));
        let file = self.folder().join("cuts.nft");
        fs::write(&file, rules).unwrap();
        let mut command = std::process::Command::new("ip");
        command.args(["netns", "exec", &self.lab.switch, "nft", "-f"]).arg(file);
        run_within(command, PATIENCE).ok();
    }
}

/// One table per port, replaced whole in one transaction.
fn render(port: &str, cuts: &[(Direction, Cut)]) -> String {
    let mut text = format!("table netdev {port}\ndelete table netdev {port}\ntable netdev {port} {{\n");
    // What the machine sends enters the bridge through its port, and what it receives leaves by it.
    for (hook, direction) in [("ingress", Direction::Outgoing), ("egress", Direction::Incoming)] {
        let _ = writeln!(text, " chain {hook}0 {{");
        let _ = writeln!(
            text,
            "  type filter hook {hook} device \"{port}\" priority 0; policy accept;"
        );
        for (_, cut) in cuts.iter().filter(|(of, _)| *of == direction) {
            let rule = match cut {
                Cut::Everything => "drop".to_owned(),
                Cut::Address(address) => {
                    let family = if address.is_ipv4() { "ip" } else { "ip6" };
                    let end = if direction == Direction::Outgoing {
                        "daddr"
                    } else {
                        "saddr"
                    };
                    format!("{family} {end} {address} drop")
                }
                Cut::Port(number) => format!(
                    "meta l4proto {{ tcp, udp }} th dport {number} drop\n  \
                     meta l4proto {{ tcp, udp }} th sport {number} drop"
                ),
                Cut::Loss { percent: 0 } => continue,
                Cut::Loss { percent: 100.. } => "drop".to_owned(),
                Cut::Loss { percent } => format!("numgen random mod 100 < {percent} drop"),
            };
            let _ = writeln!(text, "  {rule}");
        }
        text.push_str(" }\n");
    }
    text.push_str("}\n");
    text
}
