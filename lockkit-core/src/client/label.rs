//! What operators read of a client, and which texts they can read.

use crate::contract::{Error, Result};

const LONGEST: usize = 128;
const LONGEST_NOTE: usize = 512;

/// Refuses a label that does not fit on one line of a report.
pub(crate) fn check(label: &str) -> Result<()> {
    check_line("label", label, LONGEST)
}

/// Checks the text of a note. For programs that learn it long before they need it.
///
/// # Errors
/// - [`Error::InvalidOption`] as [`Guard::note`](crate::Guard::note).
pub fn check_note(note: &str) -> Result<()> {
    check_line("note", note, LONGEST_NOTE)
}

fn check_line(what: &str, text: &str, longest: usize) -> Result<()> {
    if text.len() <= longest && !text.contains(char::is_control) {
        return Ok(());
    }
    Err(Error::invalid(format!(
        "a {what} has at most {longest} bytes and no control characters"
    )))
}

/// `host:pid program` of this process, for which another program's name can stand.
pub(crate) fn of_process(program: Option<&str>) -> String {
    let own = std::env::current_exe().ok();
    let own = own.as_deref().and_then(|path| path.file_name()?.to_str());
    let program = program.or(own).unwrap_or_default();
    let label = format!("{}:{} {program}", host(), std::process::id());
    let mut label: String = label.chars().filter(|c| !c.is_control()).collect();
    while label.len() > LONGEST {
        label.pop();
    }
    label.trim_end().to_owned()
}

#[cfg(unix)]
fn host() -> String {
    let name = rustix::system::uname();
    name.nodename().to_string_lossy().into_owned()
}

#[cfg(not(unix))]
fn host() -> String {
    std::env::var("COMPUTERNAME").unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn label_of_process_names_host_process_and_program() {
        let label = of_process(None);
        let (host, rest) = label.split_once(':').unwrap();
        assert_eq!(host, super::host());
        let (pid, program) = rest.split_once(' ').unwrap();
        assert_eq!(pid, std::process::id().to_string());
        assert!(program.starts_with("lockkit_core"), "{program}");
        assert!(check(&label).is_ok());
        let long = of_process(Some(&"\u{e9}\n".repeat(99)));
        assert!(check(&long).is_ok() && long.contains("\u{e9}\u{e9}"));
    }

    #[test]
    fn label_is_one_short_line() {
        assert!(check("").is_ok());
        assert!(check(&"x".repeat(LONGEST)).is_ok());
        assert!(check(&"x".repeat(LONGEST + 1)).is_err());
        assert!(check("a\nb").is_err());
    }
}
