//! What a test program says of the tests that failed: shown again at the end of a run of an hour.

/// Lines that are kept of one program.
const LINES: usize = 12;

/// Finds it in the output, which comes line by line.
#[derive(Debug, Default)]
pub(crate) struct Failures {
    told: Vec<String>,
    /// How many lines of the present program are still to keep; `None` outside its list of failures.
    left: Option<usize>,
}

impl Failures {
    pub(crate) fn of(output: &str) -> Self {
        let mut failures = Self::default();
        output.lines().for_each(|line| failures.see(line));
        failures
    }

    pub(crate) fn see(&mut self, line: &str) {
        self.left = match self.left {
            None if line == "failures:" => Some(LINES),
            // The second list is one of names, which the first has told.
            Some(_) if line == "failures:" || line.starts_with("test result: ") => None,
            Some(left) if left > 0 && !line.trim().is_empty() => {
                self.told.push(format!("   {line}"));
                Some(left - 1)
            }
            left => left,
        };
    }

    pub(crate) fn told(&self) -> String {
        self.told.join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_failed_is_told_once_for_each_program() {
        let program = |message: &str| {
            format!(
                "running 2 tests\ntest a ... ok\ntest b ... FAILED\n\nfailures:\n\n---- b ----\n{message}\n\n\
                 failures:\n    b\n\ntest result: FAILED. 1 passed; 1 failed\n"
            )
        };
        let output =
            program("too late") + "running 0 tests\n\ntest result: ok.\n" + &program("lost");
        let told = "   ---- b ----\n   too late\n   ---- b ----\n   lost";
        assert_eq!(Failures::of(&output).told(), told);
        let long = program(&"at\n".repeat(100));
        assert_eq!(Failures::of(&long).told().lines().count(), LINES);
    }
}
