//! The slots of a Redis Cluster: each key has one, and each slot has one master.

/// How many there are.
pub(crate) const COUNT: u16 = 16_384;

/// A text that makes any key with it in braces belong to this slot.
pub(crate) fn tag(slot: u16) -> String {
    // Each slot has one among the first hundred thousand or so.
    let mut numbers = (0_u32..).map(|number| number.to_string());
    numbers.find(|tag| of(tag) == slot).unwrap_or_default()
}

pub(crate) fn of(key: &str) -> u16 {
    crc16(tag_of(key).unwrap_or(key).as_bytes()) % COUNT
}

/// The text in the first braces of a key, which alone decides then.
pub(crate) fn tag_of(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    (!tag.is_empty()).then_some(tag)
}

/// CRC-16 as XMODEM has it.
fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0, |crc, byte| {
        (0..8).fold(crc ^ u16::from(*byte) << 8, |crc, _| match crc & 0x8000 {
            0 => crc << 1,
            _ => crc << 1 ^ 0x1021,
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Those of `CLUSTER KEYSLOT`.
    #[test]
    fn slots_are_the_servers() {
        for (key, slot) in [
            ("123456789", 12_739),
            ("foo", 12_182),
            ("{user1000}.following", 3_443),
            ("foo{}{bar}", 8_363),
            ("foo{{bar}}zap", 4_015),
            ("foo{bar}{zap}", 5_061),
            ("", 0),
        ] {
            assert_eq!(of(key), slot, "{key}");
        }
    }

    #[test]
    fn each_slot_has_a_tag() {
        for slot in [0, 1, 5_461, 10_922, 16_383] {
            assert_eq!(of(&format!("lockkit_primary:{{{}}}", tag(slot))), slot);
        }
    }
}
