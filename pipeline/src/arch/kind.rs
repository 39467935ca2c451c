//! Edge kinds, and the values that an architecture and the linker hand each other.

/// How the field of an edge is computed: a number of its architecture, with its class.
///
/// The kinds of an architecture are constants in its folder, such as [`x86_64::kinds`](super::x86_64::kinds). They mean nothing in a graph of another architecture.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct EdgeKind {
    class: Class,
    number: u8,
}

/// The linker's work for an edge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Class {
    /// A field that holds the symbol's address or a distance from it. It is applied as it is.
    Direct,
    /// An address in 32 bits: the object and the symbol lie below 2 GiB.
    LowAddress,
    /// A distance that an instruction may hold. Some instructions have another form for targets that are too far away.
    Near,
    /// A call or jump, which may go through a stub.
    Branch,
    /// The symbol's entry in the graph's global offset table.
    GotEntry,
    /// The global offset table, independent of the symbol.
    GotBase,
    /// The descriptor of a thread-local variable.
    TlsDescriptor,
    /// The descriptor of the graph's own thread-local image.
    TlsModule,
    /// The offset of a thread-local variable in its module.
    TlsOffset,
    /// The distance of a thread-local variable from the thread pointer.
    TlsDistance,
    /// A word that holds such a distance.
    TlsDistanceEntry,
    /// A thread-local variable's pair of resolver and argument.
    TlsResolver,
    /// The size of the symbol.
    Size,
}

impl EdgeKind {
    pub(super) const fn new(class: Class, number: u8) -> Self {
        Self { class, number }
    }

    /// The linker's work for it.
    pub const fn class(self) -> Class {
        self.class
    }

    /// Its number, by which files name it. [`Architecture::kind_of_number`](super::Architecture::kind_of_number) is the way back.
    pub(crate) const fn number(self) -> u8 {
        self.number
    }

    pub(super) const fn index(self) -> usize {
        self.number as usize
    }

    /// Whether the kind is about thread-local variables.
    pub const fn is_thread_local(self) -> bool {
        matches!(
            self.class,
            Class::TlsDescriptor
                | Class::TlsModule
                | Class::TlsOffset
                | Class::TlsDistance
                | Class::TlsDistanceEntry
                | Class::TlsResolver
        )
    }

    /// Whether the target is used at all, beyond its name in a message.
    pub const fn ignores_target(self) -> bool {
        matches!(self.class, Class::GotBase)
    }
}

/// The meaning of a relocation type of an object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Meaning {
    Edge(EdgeKind),
    /// There is nothing to compute: a mark for linkers that rewrite the instruction.
    Nothing,
    /// Belongs into linked files, or is unknown.
    Unsupported,
}

/// The numbers an edge is computed from. The letters are those of the ABI's expressions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Operands {
    /// `P`: the address of the field.
    pub(crate) place: u64,
    /// `S`, or the other address or number that the expression of the kind starts from.
    pub(crate) target: u64,
    /// `A`.
    pub(crate) addend: i64,
    /// `GOT`: the start of the graph's global offset table.
    pub(crate) got: u64,
}

/// A value that its field cannot hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Overflow {
    /// The value.
    pub(crate) value: i64,
    /// Width of the field.
    pub(crate) bits: u8,
    /// Whether the field is sign-extended.
    pub(crate) signed: bool,
    /// The field takes multiples of it alone.
    pub(crate) unit: u8,
}

/// The other form of an instruction whose target is out of reach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FarForm {
    /// It calls or jumps, and may go through a stub.
    Stub,
    /// It computes an address, and may load that from a word close by.
    Pointer,
}

/// An instruction that loads a distance from the thread pointer into a register.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DistanceLoad {
    pub(super) register: u8,
    /// Whether the distance is added to the register's value.
    pub(super) adds: bool,
}

/// The addresses that the stub of an indirect function refers to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct IfuncParts {
    pub(crate) stub: u64,
    pub(crate) slot: u64,
    pub(crate) descriptor: u64,
    pub(crate) thunk: u64,
}

/// A field in a template of code.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CodeField {
    pub(crate) offset: u64,
    pub(crate) kind: EdgeKind,
    pub(crate) addend: i64,
}

/// The use of a pointer in a loaded object that the dynamic linker writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SlotKind {
    /// An entry of the table of a procedure linkage.
    Function,
    /// An entry of the global offset table.
    Any,
    /// A pointer in the object's data, which may point into a variable.
    Pointer,
    /// No pointer, but a number of a thread-local variable.
    ThreadLocal,
}
