//! Client transcripts: a file of commands, each followed by its output.
//!
//! ```text
//! % 1.27 1.28 1.36
//! # A remark.
//! ! a command whose output does not matter
//! $ a command
//! | what it printed
//! @ 1.27 1.28
//! | what it printed in these versions of the client instead
//! @ lockgate
//! | what it prints with this server, where that is known to differ
//! ```
//!
//! The first line lists the client versions of the recording; any other version is compared with the nearest one.
//! Without a block of its own, a command has to produce the recorded output with this server.

use std::fmt::Write as _;
use std::path::PathBuf;

/// The commands and outputs of a file.
pub(crate) struct Transcript {
    pub(crate) name: String,
    /// The client versions of the recording.
    pub(crate) versions: Vec<String>,
    pub(crate) steps: Vec<Step>,
}

/// A command.
#[derive(Default)]
pub(crate) struct Step {
    remarks: Vec<String>,
    pub(crate) command: String,
    /// True if the output is ignored.
    pub(crate) is_silent: bool,
    pub(crate) recorded: Vec<Block>,
    pub(crate) ours: Vec<Block>,
}

/// The output of some client versions.
#[derive(Default, Clone)]
pub(crate) struct Block {
    /// The versions; empty means all others.
    pub(crate) versions: Vec<String>,
    pub(crate) text: String,
}

/// The block for a version, or the block for all others.
pub(crate) fn block<'b>(blocks: &'b [Block], version: &str) -> Option<&'b str> {
    let named = blocks
        .iter()
        .find(|block| block.versions.iter().any(|named| named == version));
    let rest = || blocks.iter().find(|block| block.versions.is_empty());
    named.or_else(rest).map(|block| block.text.as_str())
}

/// Merges the blocks of versions with equal output; the most frequent output becomes the block for all others.
pub(crate) fn blocks(printed: &[(String, String)], has_rest: bool) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for (version, text) in printed {
        match blocks.iter_mut().find(|block| block.text == *text) {
            Some(block) => block.versions.push(version.clone()),
            None => blocks.push(Block {
                versions: vec![version.clone()],
                text: text.clone(),
            }),
        }
    }
    if has_rest && let Some(most) = blocks.iter_mut().max_by_key(|block| block.versions.len()) {
        most.versions.clear();
    }
    blocks.sort_by_key(|block| !block.versions.is_empty());
    blocks
}

impl Transcript {
    fn path(name: &str) -> PathBuf {
        let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR"));
        folder
            .join("tests/clients/transcripts")
            .join(format!("{name}.txt"))
    }

    pub(crate) fn read(name: &str) -> Self {
        let text = std::fs::read_to_string(Self::path(name)).unwrap();
        let mut steps = Vec::new();
        let mut remarks = Vec::new();
        let mut versions = Vec::new();
        for line in text.lines() {
            let (mark, rest) = line.split_at(line.len().min(1));
            let rest = rest.strip_prefix(' ').unwrap_or(rest);
            let last = steps.last_mut();
            match (mark, last) {
                ("" | "#", _) => remarks.push(line.to_owned()),
                ("%", _) => versions.extend(rest.split_whitespace().map(str::to_owned)),
                ("$" | "!", _) => steps.push(Step {
                    remarks: std::mem::take(&mut remarks),
                    command: rest.to_owned(),
                    is_silent: mark == "!",
                    ..Step::default()
                }),
                ("@", Some(Step { recorded, ours, .. })) => {
                    let (blocks, versions) = match rest.strip_prefix("lockgate") {
                        Some(versions) => (ours, versions),
                        None => (recorded, rest),
                    };
                    let versions = versions.split_whitespace().map(str::to_owned).collect();
                    blocks.push(Block {
                        versions,
                        text: String::new(),
                    });
                }
                ("|", Some(step)) => step.last_block().push_str(&format!("{rest}\n")),
                _ => panic!("{name}: `{line}` is no line of a transcript"),
            }
        }
        Self {
            name: name.to_owned(),
            versions,
            steps,
        }
    }

    /// The recorded version that is nearest to a version, the older of two.
    pub(crate) fn nearest(&self, version: &str) -> String {
        let minor = |version: &str| -> u32 {
            let last = version.rsplit('.').next();
            last.and_then(|minor| minor.parse().ok())
                .unwrap_or_default()
        };
        let distance = |known: &&String| minor(known).abs_diff(minor(version));
        let nearest = self.versions.iter().min_by_key(distance);
        nearest.cloned().unwrap_or_else(|| version.to_owned())
    }

    pub(crate) fn write(&self) {
        let mut text = format!("% {}\n", self.versions.join(" "));
        for step in &self.steps {
            for remark in &step.remarks {
                let _ = writeln!(text, "{remark}");
            }
            let mark = if step.is_silent { '!' } else { '$' };
            let _ = writeln!(text, "{mark} {}", step.command);
            for (whose, blocks) in [("", &step.recorded), ("lockgate ", &step.ours)] {
                for block in blocks {
                    let head = format!("@ {whose}{}", block.versions.join(" "));
                    if !whose.is_empty() || !block.versions.is_empty() {
                        let _ = writeln!(text, "{}", head.trim_end());
                    }
                    for line in block.text.lines() {
                        let _ = writeln!(text, "{}", format!("| {line}").trim_end());
                    }
                }
            }
        }
        std::fs::write(Self::path(&self.name), text).unwrap();
    }
}

impl Step {
    /// The output block to append lines to. A command without output has no block.
    fn last_block(&mut self) -> &mut String {
        let blocks = if self.ours.is_empty() {
            &mut self.recorded
        } else {
            &mut self.ours
        };
        if blocks.is_empty() {
            blocks.push(Block::default());
        }
        &mut blocks.last_mut().unwrap().text
    }
}
