//! The page that shows what happens: beside a program, and of a recording.

use std::io::{self, Read as _};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;

use clap::Args;
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::low_level::pipe;
use uruk::Jit;
use uruk::dashboard::{Dashboard, DashboardError, DashboardOptions};
use uruk::pipeline::runtime::exit::{ExitError, on_exit};

use super::examples::SEEN;
use super::flight::{self, NoFlight};
use super::report;
use super::verbose;

/// The token that a page on an address demands which other machines reach. A command line can be read by all users of the machine.
const TOKEN: &str = "URUK_DASHBOARD_TOKEN";

/// A free port of this machine.
const HERE: &str = "127.0.0.1:0";

/// The options of `uruk run` for a page.
#[derive(Debug, Args)]
pub(crate) struct DashboardArgs {
    /// Show on a page in the browser what happens while the program is compiled; its address is printed. [default ADDR: 127.0.0.1 and a free port]
    ///
    /// The page ends before the program begins, and stays in the browser as it was. An address that other machines reach demands a token in the
    /// environment: URUK_DASHBOARD_TOKEN, 16 characters at least.
    #[arg(help_heading = SEEN, long, value_name = "ADDR", num_args = 0..=1, require_equals = true, default_missing_value = HERE)]
    pub(crate) dashboard: Option<String>,

    /// Show the page while the program runs too, and after its end until control-C.
    ///
    /// For a look at what `--lazy` and `--tiered` compile. If the program replaces `malloc`, the page ends before it.
    #[arg(help_heading = SEEN, long, requires = "dashboard")]
    pub(crate) dashboard_stay: bool,

    /// A name of this machine by which the page may be asked for. Addresses and localhost always may. Repeatable.
    #[arg(help_heading = SEEN, long, value_name = "NAME", requires = "dashboard")]
    pub(crate) dashboard_host: Vec<String>,
}

/// `uruk page`.
#[derive(Debug, Args)]
pub(crate) struct PageArgs {
    /// A recording, or the number of a process that runs or was ended; `last` is the one that began last.
    #[arg(value_name = "FILE|PID")]
    recording: PathBuf,

    /// Where the page is served.
    ///
    /// An address that other machines reach demands a token in the environment: URUK_DASHBOARD_TOKEN, 16 characters at least.
    #[arg(long, value_name = "ADDR", default_value = HERE)]
    listen: String,

    /// A name of this machine by which the page may be asked for. Addresses and localhost always may. Repeatable.
    #[arg(long, value_name = "NAME")]
    host: Vec<String>,
}

/// Why there is no page.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PageError {
    #[error(transparent)]
    Dashboard(#[from] DashboardError),
    #[error(transparent)]
    NoFlight(#[from] NoFlight),
    #[error("cannot wait for control-C")]
    Wait(#[source] io::Error),
    #[error("cannot prepare the end of the program")]
    Exit(#[from] ExitError),
}

/// The page beside a program.
#[derive(Debug, Default)]
pub(crate) struct Beside {
    dashboard: Option<Dashboard>,
    stays: bool,
}

fn options(address: &str, hosts: &[String]) -> DashboardOptions {
    let mut options = hosts.iter().fold(DashboardOptions::at(address), |options, host| options.host(host));
    if let Ok(token) = std::env::var(TOKEN) {
        options = options.token(token);
    }
    options
}

/// Registers the wait behind the program's end. Before the other handlers: the first one runs last.
pub(crate) fn stay_at_exit(args: &DashboardArgs) -> Result<(), PageError> {
    if args.dashboard_stay {
        let process = std::process::id();
        on_exit(move |_| {
            if std::process::id() == process
                && let Err(error) = wait("the program has ended; control-C ends the page")
            {
                report::error(&error);
            }
        })?;
    }
    Ok(())
}

/// Begins to show what happens in an engine.
pub(crate) fn beside(jit: &Jit, args: &DashboardArgs) -> Result<Beside, PageError> {
    let Some(address) = &args.dashboard else { return Ok(Beside::default()) };
    let dashboard = jit.dashboard(options(address, &args.dashboard_host))?;
    verbose::say(&format!("the page is at {}", dashboard.url()));
    Ok(Beside { dashboard: Some(dashboard), stays: args.dashboard_stay })
}

impl Beside {
    /// Before the program's first instruction: leaves it alone in its process, unless the page is to stay.
    pub(crate) fn program_begins(&mut self) {
        if !self.stays {
            self.dashboard = None;
        }
    }

    /// The program's own functions allocate from here on, and may be for its own threads.
    pub(crate) fn allocator_is_replaced(&mut self) {
        self.dashboard = None;
    }

    /// The program begins, which ends the process.
    pub(crate) fn leave(self) {
        if let Some(dashboard) = self.dashboard {
            Box::leak(Box::new(dashboard)); // serves to the end
        }
    }
}

/// Shows a recording until control-C.
pub(crate) fn page(args: &PageArgs) -> Result<(), PageError> {
    let dashboard =
        Dashboard::of_file(&flight::file_of(&args.recording)?, options(&args.listen, &args.host))?;
    wait(&format!("the page is at {}; control-C ends it", dashboard.url()))
}

fn wait(said: &str) -> Result<(), PageError> {
    let waited = || -> io::Result<()> {
        let (mut signal, write) = UnixStream::pair()?;
        pipe::register(SIGINT, write.try_clone()?)?;
        pipe::register(SIGTERM, write)?;
        verbose::say(said);
        signal.read_exact(&mut [0])
    };
    waited().map_err(PageError::Wait)
}
