//! The one error that people and other programs see: a code, a sentence, the offending fields, and the command that
//! mends it (design, section 12).
//!
//! It knows nothing of terminals or HTTP; `cli::output` renders it for people and `api` for programs.

use std::fmt;

/// What went wrong, in the terms of what the reader has to do about it. The exit code and the HTTP status follow from
/// it, so two places can never disagree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Code {
    /// What was asked for makes no sense or is unsafe: mend the configuration or the file.
    InvalidInput,
    /// This machine, its `celld` or the store lacks something that Scafo needs.
    CapabilityMissing,
    /// Somebody or something else holds what was asked for.
    Conflict,
    /// There is no such thing.
    NotFound,
    /// The caller is not who may do this.
    Unauthorized,
    /// A deploy freeze stands.
    Frozen,
    /// Something cannot be reached right now; the same request may succeed later.
    Unavailable,
    /// A bug in Scafo.
    Internal,
}

impl Code {
    /// The stable name, as printed and as sent over the API.
    pub fn name(self) -> &'static str {
        match self {
            Self::InvalidInput => "invalid-input",
            Self::CapabilityMissing => "capability-missing",
            Self::Conflict => "conflict",
            Self::NotFound => "not-found",
            Self::Unauthorized => "unauthorized",
            Self::Frozen => "frozen",
            Self::Unavailable => "unavailable",
            Self::Internal => "internal",
        }
    }

    /// The process's exit code. systemd must not restart 2, 3 and 4: nothing changes by trying again.
    pub fn exit_code(self) -> u8 {
        match self {
            Self::InvalidInput => 2,
            Self::CapabilityMissing => 3,
            Self::Conflict => 4,
            Self::NotFound => 5,
            Self::Unauthorized => 6,
            Self::Frozen => 7,
            Self::Unavailable => 8,
            Self::Internal => 70,
        }
    }

    /// The HTTP status of an API answer that carries this code.
    pub fn http_status(self) -> u16 {
        match self {
            Self::InvalidInput => 400,
            Self::CapabilityMissing => 501,
            Self::Conflict => 409,
            Self::NotFound => 404,
            Self::Unauthorized => 401,
            Self::Frozen => 423,
            Self::Unavailable => 503,
            Self::Internal => 500,
        }
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// One offending field: what it is called, what it holds, where that came from, and what is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Field {
    /// The key as the configuration or the record spells it, for example `node.address`.
    pub name: String,
    /// Its value as given. Never a secret.
    pub value: String,
    /// Where the value came from, for example `--address` or `/etc/scafo/config.json`.
    pub origin: Option<String>,
    /// What is wrong with it, when the message does not say so for all fields at once.
    pub reason: Option<String>,
}

impl Field {
    /// A field with its value, and no origin or reason yet.
    pub fn new(name: impl Into<String>, value: impl fmt::Display) -> Self {
        Self {
            name: name.into(),
            value: value.to_string(),
            origin: None,
            reason: None,
        }
    }

    /// Says where the value came from.
    #[must_use]
    pub fn from(mut self, origin: impl fmt::Display) -> Self {
        self.origin = Some(origin.to_string());
        self
    }

    /// Says what is wrong with the value.
    #[must_use]
    pub fn because(mut self, reason: impl Into<String>) -> Self {
        self.reason = Some(reason.into());
        self
    }
}

/// An error for people and programs. All faults of one attempt travel in one value, never one at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// What kind of thing went wrong.
    pub code: Code,
    /// One sentence, without a full stop.
    pub message: String,
    /// Every offending field.
    pub fields: Vec<Field>,
    /// What mends it, one line each; a command where there is one.
    pub help: Vec<String>,
}

impl Error {
    /// An error with its one sentence.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            fields: Vec::new(),
            help: Vec::new(),
        }
    }

    /// `invalid-input`.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::new(Code::InvalidInput, message)
    }

    /// `capability-missing`.
    pub fn capability(message: impl Into<String>) -> Self {
        Self::new(Code::CapabilityMissing, message)
    }

    /// `conflict`.
    pub fn conflict(message: impl Into<String>) -> Self {
        Self::new(Code::Conflict, message)
    }

    /// `unavailable`.
    pub fn unavailable(message: impl Into<String>) -> Self {
        Self::new(Code::Unavailable, message)
    }

    /// `internal`: a bug, never a user's mistake.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(Code::Internal, message)
    }

    /// Adds an offending field.
    #[must_use]
    pub fn field(mut self, field: Field) -> Self {
        self.fields.push(field);
        self
    }

    /// Adds offending fields.
    #[must_use]
    pub fn fields(mut self, fields: impl IntoIterator<Item = Field>) -> Self {
        self.fields.extend(fields);
        self
    }

    /// Adds a line that says what mends it.
    #[must_use]
    pub fn help(mut self, line: impl Into<String>) -> Self {
        self.help.push(line.into());
        self
    }
}

/// The plain-text form without colour: `error[code]: sentence`, a line per field, a line per help.
impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "error[{}]: {}", self.code, self.message)?;
        for field in &self.fields {
            write!(f, "\n  {} = {}", field.name, field.value)?;
            if let Some(origin) = &field.origin {
                write!(f, " (from {origin})")?;
            }
            if let Some(reason) = &field.reason {
                write!(f, ": {reason}")?;
            }
        }
        for line in &self.help {
            write!(f, "\nhelp: {line}")?;
        }
        Ok(())
    }
}

impl std::error::Error for Error {}

/// What most of Scafo returns.
pub type Result<T, E = Error> = std::result::Result<T, E>;
