//! What people and programs read: data to standard output, everything else to standard error, colour only on a terminal
//! that wants it.

use std::fmt;
use std::io::{self, Write};

use anstyle::{AnsiColor, Style};
use comfy_table::{ContentArrangement, presets};
use serde::Serialize;

use crate::error::{Error, Result};

/// Prints data. A reader that went away (`| head`) ends the program quietly and well.
pub fn print(text: &str) -> Result<()> {
    let mut output = anstream::stdout().lock();
    written(output.write_all(text.as_bytes()).and_then(|()| output.flush()))
}

/// Prints data as JSON, for programs.
pub fn print_json(value: &impl Serialize) -> Result<()> {
    let text = serde_json::to_string_pretty(value);
    let text = text.map_err(|error| Error::internal(format!("the answer has no JSON: {error}")))?;
    print(&(text + "\n"))
}

/// Clears a terminal before the next listing; does nothing elsewhere.
pub fn clear_screen() -> Result<()> {
    use std::io::IsTerminal;
    if !io::stdout().is_terminal() {
        return Ok(());
    }
    let mut output = io::stdout().lock();
    // Home, then erase to the end (ECMA-48): no flicker, and what was scrolled away stays.
    written(output.write_all(b"\x1b[H\x1b[J"))
}

fn written(result: io::Result<()>) -> Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(|error| Error::internal(format!("the answer cannot be printed: {error}"))),
    }
}

/// Prints an error for people.
pub fn print_error(error: &Error) {
    let mut output = anstream::stderr().lock();
    // Nobody is left to tell.
    let _ = output.write_all(styled(error).as_bytes());
}

fn styled(error: &Error) -> String {
    let bad = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let help = Style::new().bold().fg_color(Some(AnsiColor::Cyan.into()));
    let mut text = String::new();
    for line in error.to_string().lines() {
        if let Some(rest) = line.strip_prefix("help:") {
            text.push_str(&format!("{help}help:{help:#}{rest}\n"));
        } else if let Some((code, rest)) = line.split_once("]: ").filter(|(code, _)| code.starts_with("error[")) {
            text.push_str(&format!("{bad}{code}]{bad:#}: {rest}\n"));
        } else {
            text.push_str(line);
            text.push('\n');
        }
    }
    text
}

/// A table without lines: columns that align, and that follow the terminal's width.
#[derive(Debug)]
pub struct Table(comfy_table::Table);

impl Table {
    /// A table with these headings.
    pub fn new<const N: usize>(headings: [&str; N]) -> Self {
        let mut table = comfy_table::Table::new();
        table
            .load_style(presets::NOTHING)
            .set_content_arrangement(ContentArrangement::Dynamic);
        table.set_header(headings);
        // The first column begins at the margin.
        if let Some(column) = table.column_mut(0) {
            column.set_padding((0, 1));
        }
        Self(table)
    }

    /// Adds a row.
    pub fn row<const N: usize>(&mut self, cells: [String; N]) {
        self.0.add_row(cells);
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for line in self.0.lines() {
            writeln!(f, "{}", line.trim_end())?;
        }
        Ok(())
    }
}

/// An age in its two largest units: `4s`, `3m12s`, `2h5m`, `3d4h`.
pub fn age(ms: u64) -> String {
    let seconds = ms / 1_000;
    let (minutes, hours, days) = (seconds / 60, seconds / 3_600, seconds / 86_400);
    match seconds {
        0..60 => format!("{seconds}s"),
        60..3_600 => format!("{minutes}m{}s", seconds % 60),
        3_600..86_400 => format!("{hours}h{}m", minutes % 60),
        _ => format!("{days}d{}h", hours % 24),
    }
}

/// A number of bytes in the unit that keeps it short.
pub fn bytes(count: u64) -> String {
    let mut rest = count as f64;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if rest < 1_024.0 {
            return if unit == "B" {
                format!("{count} B")
            } else {
                format!("{rest:.1} {unit}")
            };
        }
        rest /= 1_024.0;
    }
    format!("{rest:.1} TiB")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Field;

    #[test]
    fn ages_and_bytes_are_short() {
        for (ms, shown) in [
            (0, "0s"),
            (59_999, "59s"),
            (192_000, "3m12s"),
            (7_500_000, "2h5m"),
            (273_600_000, "3d4h"),
        ] {
            assert_eq!(age(ms), shown);
        }
        for (count, shown) in [
            (0, "0 B"),
            (1_023, "1023 B"),
            (1_536, "1.5 KiB"),
            (5 << 30, "5.0 GiB"),
            (3 << 40, "3.0 TiB"),
        ] {
            assert_eq!(bytes(count), shown);
        }
    }

    #[test]
    fn a_styled_error_says_what_the_plain_one_says() {
        let error = Error::conflict("taken")
            .field(Field::new("api.port", 7300).from("--api-port"))
            .help("choose another");
        let plain = anstream::adapter::strip_str(&styled(&error)).to_string();
        assert_eq!(plain, error.to_string() + "\n");
    }
}
