"""The one error tree of scratchbus.

Every message is one line that says what is wrong and what to do. Everything a program needs to react is in attributes,
never only in the text. An error that interrupts a write has the `event_id` to retry with; if the write is in the log,
the error also has its `position`, and for a claim the `fence`.

    ScratchbusError
    ├── InvalidInput            the input is invalid; nothing was written
    │   ├── InvalidField        a field of an observation or event   (.field)
    │   │   ├── UnknownField    a field that does not exist          (.field, .known)
    │   │   ├── ReadOnlyField   id, created_at, source …             (.field)
    │   │   └── TooLarge        over a limit                         (.field, .size, .limit)
    │   ├── BudgetTooSmall      the parts that are never cut exceed it (.budget, .needed)
    │   ├── UnknownType         a type that is not registered        (.type, .nearest, .known)
    │   ├── InvalidTTL · InvalidId · InvalidName · InvalidSource · InvalidPosition · InvalidURL
    │   ├── RegistryError       the types file                       (.file, .line, .column, .key)
    │   ├── RulesError          the logwatch or tools file           (.file, .line, .column, .key)
    │   ├── SettingsError       a setting
    │   │   └── SettingsFileError   the settings file             (.file, .line, .column, .key)
    │   ├── InvalidExport       the export file to import             (.line)
    │   ├── Unauthorized        another agent's scratchpad            (.agent, .source, .kind)
    │   └── ShardsMismatch      the bus was created with other shards (.expected, .actual)
    ├── NotFound                no such observation, page, file, …
    │   └── FileGone            a log file does not exist             (.path)
    ├── Conflict                the state of the bus does not allow it; nothing was written
    │   ├── VersionConflict     (.expected, .actual)
    │   │   └── RevisionConflict    a memory changed since it was read
    │   ├── InvalidTransition   (.from_status, .to_status, .allowed, .id)
    │   │   └── NotChangeable   not possible in this status
    │   ├── KeyHeld             another observation has the dedupe key (.id, .key, .holder)
    │   ├── Claimed             another connection holds the claim   (.by, .until, .id)
    │   ├── NotClaimed          there is no claim to release         (.id)
    │   ├── StaleFence          the claim of this fence has ended    (.fence, .actual, .id)
    │   ├── PageFull            no room, and nothing may be displaced (.page, .limit)
    │   ├── EventIdReused       same event id, other arguments       (.event_id)
    │   ├── SessionOver         the session has ended               (.session)
    │   ├── SessionExists       a session of that name exists        (.session)
    │   ├── TypeInUse           the type has open observations       (.type, .open)
    │   ├── NotEmpty            the bus has events, so none can be imported
    │   ├── RebuildHeld         someone else is rebuilding the state (.holder)
    │   ├── SubscriptionMismatch    in use with other filters        (.name, .holder)
    │   ├── SubscriptionHeld    a consumer is using it               (.name, .holder)
    │   ├── LeaseLost           another consumer may have taken over (.name)
    │   ├── NotDelivered        the event is not out for delivery    (.name)
    │   ├── TooManyUnacked      too many deliveries are not acked    (.name)
    │   └── ArchiveBusy         another archiver is running          (.shard, .who)
    ├── EngineError             the Redis or Valkey server
    │   ├── EngineUnreachable · EngineAuth · EngineTooOld · EngineReadOnly · EngineFull · EngineLoading
    │   ├── EngineMissing       there is no server binary to start
    │   ├── EngineNotStarted    the embedded server could not be started
    │   ├── EngineMisconfigured the server's configuration does not support it
    │   ├── EngineForbidden     the server's ACL forbids it
    │   ├── NotReplicated       written, but on too few replicas     (.copies, .wanted)
    │   └── ForeignData         the data directory belongs to another engine
    ├── ArchiveError            the archive of the log
    │   ├── ArchiveDamaged      a file is missing or has changed
    │   ├── ArchiveForeign      it belongs to another bus or log
    │   └── ArchiveUnavailable  no permission, no space, no response
    ├── BusClosed               the program has closed the bus
    ├── ViewClosed              the view is not open
    └── LogError                reading the log
        ├── Behind              a read could not catch up within fresh_timeout
        ├── PositionLost        the log was trimmed past the position
        ├── LogRewound          the log is not the one read before
        ├── LogGap              a position is missing, neither trimmed nor erased
        ├── CodeTooOld          an event or state has a newer schema than this code
        └── StateTooOld         the stored state has a format this code no longer reads
"""

from scratchbus.errors.archive import ArchiveBusy, ArchiveDamaged, ArchiveError, ArchiveForeign, ArchiveUnavailable
from scratchbus.errors.base import ScratchbusError, shown
from scratchbus.errors.closed import BusClosed, ViewClosed
from scratchbus.errors.engine import (
    EngineAuth,
    EngineError,
    EngineForbidden,
    EngineFull,
    EngineLoading,
    EngineMisconfigured,
    EngineMissing,
    EngineNotStarted,
    EngineReadOnly,
    EngineTooOld,
    EngineUnreachable,
    ForeignData,
    NotReplicated,
)
from scratchbus.errors.input import (
    BudgetTooSmall,
    InvalidExport,
    InvalidField,
    InvalidId,
    InvalidInput,
    InvalidName,
    InvalidPosition,
    InvalidSource,
    InvalidTTL,
    InvalidURL,
    ReadOnlyField,
    RegistryError,
    RulesError,
    SettingsError,
    SettingsFileError,
    ShardsMismatch,
    TooLarge,
    Unauthorized,
    UnknownField,
    UnknownType,
)
from scratchbus.errors.log import Behind, CodeTooOld, LogError, LogGap, LogRewound, PositionLost, StateTooOld
from scratchbus.errors.state import (
    Claimed,
    Conflict,
    EventIdReused,
    FileGone,
    InvalidTransition,
    KeyHeld,
    NotChangeable,
    NotClaimed,
    NotEmpty,
    NotFound,
    PageFull,
    RebuildHeld,
    RevisionConflict,
    SessionExists,
    SessionOver,
    StaleFence,
    TypeInUse,
    VersionConflict,
)
from scratchbus.errors.subscribing import (
    LeaseLost,
    NotDelivered,
    SubscriptionHeld,
    SubscriptionMismatch,
    TooManyUnacked,
)

__all__ = [
    "ArchiveBusy",
    "ArchiveDamaged",
    "ArchiveError",
    "ArchiveForeign",
    "ArchiveUnavailable",
    "Behind",
    "BudgetTooSmall",
    "BusClosed",
    "Claimed",
    "CodeTooOld",
    "Conflict",
    "EngineAuth",
    "EngineError",
    "EngineForbidden",
    "EngineFull",
    "EngineLoading",
    "EngineMisconfigured",
    "EngineMissing",
    "EngineNotStarted",
    "EngineReadOnly",
    "EngineTooOld",
    "EngineUnreachable",
    "EventIdReused",
    "FileGone",
    "ForeignData",
    "InvalidExport",
    "InvalidField",
    "InvalidId",
    "InvalidInput",
    "InvalidName",
    "InvalidPosition",
    "InvalidSource",
    "InvalidTTL",
    "InvalidTransition",
    "InvalidURL",
    "KeyHeld",
    "LeaseLost",
    "LogError",
    "LogGap",
    "LogRewound",
    "NotChangeable",
    "NotClaimed",
    "NotDelivered",
    "NotEmpty",
    "NotFound",
    "NotReplicated",
    "PageFull",
    "PositionLost",
    "ReadOnlyField",
    "RebuildHeld",
    "RegistryError",
    "RevisionConflict",
    "RulesError",
    "ScratchbusError",
    "SessionExists",
    "SessionOver",
    "SettingsError",
    "SettingsFileError",
    "ShardsMismatch",
    "StaleFence",
    "StateTooOld",
    "SubscriptionHeld",
    "SubscriptionMismatch",
    "TooLarge",
    "TooManyUnacked",
    "TypeInUse",
    "Unauthorized",
    "UnknownField",
    "UnknownType",
    "VersionConflict",
    "ViewClosed",
    "shown",
]
