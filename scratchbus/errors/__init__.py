"""The one error tree of scratchbus.

Every message is one line that says what is wrong and what to do about it; what a program needs to react
is in attributes, never only in the text.
An error that interrupts a write has the `event_id` to retry it with; once the write is in the log it has the `position`
too, and the `fence` of a claim.

    ScratchbusError
    ├── InvalidInput            what was given is not acceptable; nothing was written
    │   ├── InvalidField        a field of an observation or event   (.field)
    │   │   ├── UnknownField    a field nobody knows                 (.field, .known)
    │   │   ├── ReadOnlyField   id, created_at, source …             (.field)
    │   │   └── TooLarge        over a limit                         (.field, .size, .limit)
    │   ├── BudgetTooSmall      for what of a context is never cut   (.budget, .needed)
    │   ├── UnknownType         a type that is not registered        (.type, .nearest, .known)
    │   ├── InvalidTTL · InvalidId · InvalidName · InvalidSource · InvalidPosition · InvalidURL
    │   ├── RegistryError       the types file                       (.file, .line, .key, .allowed)
    │   ├── RulesError          the logwatch or tools file           (.file, .line, .key)
    │   ├── SettingsError       a setting
    │   │   └── SettingsFileError   the settings file             (.file, .line, .key, .allowed)
    │   ├── InvalidExport       what is to be imported                (.line)
    │   ├── Unauthorized        another agent's scratchpad            (.agent, .source, .kind)
    │   └── ShardsMismatch      the bus was created with other shards (.expected, .actual)
    ├── NotFound                no such observation, page, file …
    │   └── FileGone            a log file that is not there          (.path)
    ├── Conflict                the state of the bus forbids it; nothing was written
    │   ├── VersionConflict     (.expected, .actual)
    │   │   └── RevisionConflict    a memory changed since it was read
    │   ├── InvalidTransition   (.from_status, .to_status, .allowed, .id)
    │   │   └── NotChangeable   in this status it cannot be done
    │   ├── KeyHeld             another has the dedupe key by now    (.id, .key, .holder)
    │   ├── Claimed             someone else holds it                (.by, .until, .id)
    │   ├── NotClaimed          nobody holds it                      (.id)
    │   ├── StaleFence          the claim this fence came from is over (.fence, .actual, .id)
    │   ├── PageFull            no room, and nothing may give way    (.page, .limit)
    │   ├── EventIdReused       same event id, other arguments       (.event_id)
    │   ├── SessionOver         the session has ended               (.session)
    │   ├── SessionExists       a session of that name is there      (.session)
    │   ├── TypeInUse           a type cannot go while it is open    (.type, .open)
    │   ├── NotEmpty            events cannot be imported into this bus
    │   ├── RebuildHeld         someone else is building the state anew (.holder)
    │   ├── SubscriptionMismatch    in use with other filters        (.name, .holder)
    │   ├── SubscriptionHeld    a consumer is at it                  (.name, .holder)
    │   ├── LeaseLost           another consumer may have taken over (.name)
    │   ├── NotDelivered        it was not handed out, or no longer  (.name)
    │   ├── TooManyUnacked      too many were handed out and not acked (.name)
    │   └── ArchiveBusy         another archiver is at work          (.shard, .who)
    ├── EngineError             the Redis or Valkey server
    │   ├── EngineUnreachable · EngineAuth · EngineTooOld · EngineReadOnly · EngineFull · EngineLoading
    │   ├── EngineMissing       there is no server binary to start
    │   ├── EngineNotStarted    the embedded server could not be started
    │   ├── EngineMisconfigured the server is not set up for what was asked
    │   ├── EngineForbidden     the server's ACL forbids it
    │   ├── NotReplicated       written, but on too few replicas     (.copies, .wanted)
    │   └── ForeignData         the data directory is another engine's
    ├── ArchiveError            the archive of the log
    │   ├── ArchiveDamaged      a file is missing, or not what was put there
    │   ├── ArchiveForeign      it is that of another bus or log
    │   └── ArchiveUnavailable  no permission, no space, no answer
    ├── BusClosed               the bus was closed by its own program
    ├── ViewClosed              the view was closed, or never entered
    └── LogError                reading the log
        ├── Behind              a read could not catch up within fresh_timeout
        ├── PositionLost        the log was trimmed past the position
        ├── LogRewound          the log is not the one that was read before
        ├── LogGap              a position is missing that no trim or erasure explains
        ├── CodeTooOld          an event or state of a newer schema than this code knows
        └── StateTooOld         state of an older form than this code reads
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
