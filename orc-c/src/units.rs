//! Materialization units.

use std::ffi::c_void;

use uruk::core::sync::{Arc, Mutex};
use uruk::core::{
    DefineError, JitDylib, MaterializationInterface, MaterializationResponsibility, MaterializationUnit,
    SymbolFlagsMap, SymbolMap, SymbolName, absolute_symbols, shared_error,
};

use crate::boundary::{Array, Text};
use crate::callbacks::{self, Call, Data, Materialize};
use crate::dylib;
use crate::errors::Problem;
use crate::handles::{self, Handle, Handled};
use crate::names::{self, Lent};
use crate::responsibility::Responsibility;
use crate::symbols::{FlagsMapPair, SymbolMapPair, take_addresses, take_flags};

/// An `LLVMOrcMaterializationUnitRef`: the place where the unit lies until a dylib has accepted it.
pub(crate) struct Unit(Place);

type Place = Arc<Mutex<Option<Box<dyn MaterializationUnit>>>>;

impl Handled for Unit {
    const KIND: &'static str = "LLVMOrcMaterializationUnitRef";
}

impl Unit {
    pub(crate) fn give(unit: Box<dyn MaterializationUnit>) -> Handle {
        handles::give(Self(Arc::new(Mutex::new(Some(unit)))))
    }

    /// The unit itself; its handle ends.
    pub(crate) fn take(handle: Handle) -> Result<Box<dyn MaterializationUnit>, Problem> {
        let unit = handles::take::<Self>(handle)?;
        let taken = unit.0.lock().take();
        taken.ok_or_else(|| Problem::new("the unit is in use by another call"))
    }

    /// Defines the unit. If that is refused, it is the client's as before.
    pub(crate) fn define(
        handle: Handle,
        define: impl FnOnce(Box<dyn MaterializationUnit>) -> Result<(), DefineError>,
    ) -> Result<(), Problem> {
        let unit = handles::get::<Self>(handle)?;
        define(Box::new(Offered::of(&unit.0)?))?;
        drop(handles::take::<Self>(handle));
        Ok(())
    }
}

/// A unit while a dylib decides: dropped, it leaves the unit where the client's handle finds it.
struct Offered {
    place: Place,
    name: String,
    interface: MaterializationInterface,
}

impl Offered {
    fn of(place: &Place) -> Result<Self, Problem> {
        let unit = place.lock();
        let unit = unit.as_ref().ok_or_else(|| Problem::new("the unit is in use by another call"))?;
        Ok(Self { place: place.clone(), name: unit.name().to_owned(), interface: unit.interface() })
    }

    fn take(&self) -> Option<Box<dyn MaterializationUnit>> {
        self.place.lock().take()
    }
}

impl MaterializationUnit for Offered {
    fn name(&self) -> &str {
        &self.name
    }

    fn interface(&self) -> MaterializationInterface {
        self.interface.clone()
    }

    fn known_addresses(&mut self) -> Option<SymbolMap> {
        self.place.lock().as_mut()?.known_addresses()
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        match self.take() {
            Some(unit) => unit.materialize(responsibility),
            None => responsibility.fail(shared_error("the client has taken the unit back")),
        }
    }

    fn discard(&mut self, dylib: &JitDylib, symbol: &SymbolName) {
        if let Some(mut unit) = self.take() {
            unit.discard(dylib, symbol);
            *self.place.lock() = Some(unit);
        }
    }
}

type Discard = unsafe extern "C" fn(*mut c_void, Handle, Handle);
pub(crate) type Destroy = unsafe extern "C" fn(*mut c_void);

/// A unit of the client's functions.
struct ClientUnit {
    name: String,
    interface: MaterializationInterface,
    data: Data,
    materialize: Materialize,
    discard: Option<Discard>,
    /// None once the data is the client's again.
    destroy: Option<Destroy>,
}

impl MaterializationUnit for ClientUnit {
    fn name(&self) -> &str {
        &self.name
    }

    fn interface(&self) -> MaterializationInterface {
        self.interface.clone()
    }

    fn materialize(mut self: Box<Self>, responsibility: MaterializationResponsibility) {
        self.destroy = None;
        let (function, data) = (self.materialize, self.data);
        let responsibility = Responsibility::give(responsibility);
        callbacks::post(Call::Materialize { function, data, responsibility });
    }

    fn discard(&mut self, dylib: &JitDylib, symbol: &SymbolName) {
        self.interface.symbols.remove(symbol);
        if let Some(discard) = self.discard {
            let mut names = Lent::default();
            // SAFETY: the client has given the function for that, with its data; both handles live for the call.
            unsafe { discard(self.data.0, dylib::handle(dylib), names.lend(symbol)) };
        }
    }
}

impl Drop for ClientUnit {
    fn drop(&mut self) {
        if let Some(destroy) = self.destroy
            && !self.data.0.is_null()
        {
            // SAFETY: the client has given the function for that, with its data, which nothing else has any more.
            unsafe { destroy(self.data.0) };
        }
    }
}

/// Symbols with addresses.
struct Absolute(SymbolMap);

impl MaterializationUnit for Absolute {
    fn name(&self) -> &str {
        "<absolute symbols>"
    }

    fn interface(&self) -> MaterializationInterface {
        let flags: SymbolFlagsMap =
            self.0.iter().map(|(name, definition)| (name.clone(), definition.flags)).collect();
        MaterializationInterface::new(flags)
    }

    fn known_addresses(&mut self) -> Option<SymbolMap> {
        Some(self.0.clone())
    }

    fn materialize(self: Box<Self>, responsibility: MaterializationResponsibility) {
        absolute_symbols(self.0).materialize(responsibility);
    }

    fn discard(&mut self, _: &JitDylib, symbol: &SymbolName) {
        self.0.remove(symbol);
    }
}

interface! {
    fn LLVMOrcDisposeMaterializationUnit(unit: Handle) {
        handles::take::<Unit>(unit).map(drop)
    }

    /// Takes the names over, that of the initializer too.
    fn LLVMOrcCreateCustomMaterializationUnit(
        name: Text,
        data: *mut c_void,
        pairs: Array<FlagsMapPair>,
        len: usize,
        initializer: Handle,
        materialize: Materialize,
        discard: Option<Discard>,
        destroy: Option<Destroy>,
    ) -> Handle {
        let initializer = (!initializer.is_null()).then(|| names::take(initializer));
        let interface = MaterializationInterface::new(take_flags(pairs.of(len)?)?);
        let interface = match initializer {
            Some(initializer) => interface.with_initializer(initializer?),
            None => interface,
        };
        let (name, data) = (name.get()?.to_owned(), Data(data));
        Ok(Unit::give(Box::new(ClientUnit { name, interface, data, materialize, discard, destroy })))
    }

    /// Takes the names over.
    fn LLVMOrcAbsoluteSymbols(pairs: Array<SymbolMapPair>, len: usize) -> Handle {
        Ok(Unit::give(Box::new(Absolute(take_addresses(pairs.of(len)?)?))))
    }
}
