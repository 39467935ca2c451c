//! Symbols and tables of an executable, where the engine has the process for a program.

use std::collections::HashMap;

use uruk_core::sync::Arc;
use uruk_core::{ExecutorAddr, ExecutorSymbolDef};
use uruk_pipeline::executor::PublishError;
use uruk_pipeline::memory::{
    InProcessMemoryManager, MemoryManager, MemoryOptions, SegmentKind, SegmentRequest, ViewPolicy,
};
use uruk_pipeline::runtime::image::{ProgramImage, debuggers_record};
use uruk_pipeline::runtime::in_process::InProcessExecutor;

fn manager(views: ViewPolicy) -> Arc<dyn MemoryManager> {
    let options = MemoryOptions { views, keeps_program: true, ..MemoryOptions::default() };
    Arc::new(InProcessMemoryManager::with_options(options).expect("addresses are free"))
}

fn image(memory: &Arc<dyn MemoryManager>) -> Result<Option<ProgramImage>, PublishError> {
    ProgramImage::new(&InProcessExecutor::new(memory.clone()), debuggers_record())
}

fn symbols(image: &ProgramImage) -> HashMap<&'static str, ExecutorSymbolDef> {
    image.symbols().collect()
}

#[test]
fn code_and_data_lie_between_the_symbols_that_bound_them() {
    for views in [ViewPolicy::TwoViews, ViewPolicy::TwoViewsOfFile, ViewPolicy::OneView] {
        let memory = manager(views);
        let image = image(&memory).expect("there is memory").expect("the manager keeps room");
        let symbols = symbols(&image);
        let at = |name: &str| symbols[name].address;
        let (text, data) = (at("__executable_start")..at("etext"), at("data_start")..at("_end"));
        assert!(text.end <= data.start && at("edata") == data.end && at("__bss_start") == data.start);
        let take = |kind, bytes| {
            let request = SegmentRequest { kind, content_bytes: bytes, zero_fill_bytes: 0, align: 16 };
            memory.allocate("unit", &[request]).expect("there is memory").finalize().expect("it is mapped")
        };
        for bytes in [100, 3 << 20] {
            let code = take(SegmentKind::Code, bytes);
            let constants = take(SegmentKind::ReadOnly, bytes);
            let variables = take(SegmentKind::Data, bytes);
            assert!(
                text.contains(&code.address(0)) && text.contains(&constants.address(0)),
                "{views:?} {bytes}"
            );
            assert!(data.contains(&variables.address(0)), "{views:?} {bytes}");
        }
        // Before and behind what is mapped, and where something was.
        for address in (data.start.value()..data.end.value()).step_by(64 << 10) {
            // SAFETY: all of the stretch can be read, which is what is tested.
            unsafe { ExecutorAddr::new(address).to_ptr::<u8>().read_volatile() };
        }
    }
}

#[test]
fn the_header_is_that_of_an_executable() {
    let memory = manager(ViewPolicy::Automatic);
    let image = image(&memory).expect("there is memory").expect("the manager keeps room");
    let symbols = symbols(&image);
    let start = symbols["__ehdr_start"].address.value();
    // SAFETY: the image lives, and is longer than that.
    let bytes = unsafe { std::slice::from_raw_parts(ExecutorAddr::new(start).to_ptr::<u8>(), 4096) };
    assert_eq!(&bytes[..4], b"\x7fELF");
    let word = |at: usize| bytes[at..at + 8].try_into().map(u64::from_le_bytes).expect("eight bytes");
    let half = |at: usize| usize::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let (headers_at, header_bytes, headers) = (word(32) as usize, half(54), half(56));
    let at = |index: usize| headers_at + index * header_bytes;
    let kinds: Vec<u8> = (0..headers).map(|index| bytes[at(index)]).collect();
    assert_eq!(kinds, [6, 1, 1, 2, 0x51]);
    assert_eq!(start + word(at(1) + 40), symbols["etext"].address.value());
    assert_eq!(start + word(at(2) + 16) + word(at(2) + 40), symbols["end"].address.value());
    let dynamic = word(at(3) + 16) as usize;
    assert_eq!(start + dynamic as u64, symbols["_DYNAMIC"].address.value());
    assert_eq!(word(dynamic), 21, "the debugger's record comes first");
    assert_ne!(word(dynamic + 8), 0);
}

#[test]
fn a_manager_that_keeps_no_room_has_no_image() {
    let memory: Arc<dyn MemoryManager> = Arc::new(InProcessMemoryManager::new().expect("addresses are free"));
    assert!(memory.program_window().is_none());
    assert!(image(&memory).expect("nothing is taken").is_none());
}
