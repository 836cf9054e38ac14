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
    │   ├── BudgetTooSmall      the texts of a strict context exceed it (.budget, .needed)
    │   ├── UnknownType         a type that is not registered        (.type, .nearest, .known)
    │   ├── UnknownRelation     a relation that is not declared      (.relation, .nearest, .known)
    │   ├── InvalidTTL · InvalidId · InvalidName · InvalidSource · InvalidPosition · InvalidURL
    │   ├── RegistryError       the types file                       (.file, .line, .column, .key)
    │   ├── RelationsError      the relations file                   (.file, .line, .column, .key)
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
    │   ├── NotReady            it cannot be claimed yet              (.id)
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
    │   ├── EngineForbidden     the server's ACL forbids the command
    │   ├── NotReplicated       written, but on too few replicas     (.copies, .wanted)
    │   └── ForeignData         the data directory belongs to another engine
    ├── ArchiveError            the archive of the log
    │   ├── ArchiveDamaged      a file is missing or has changed
    │   ├── ArchiveForeign      it belongs to another bus or log
    │   └── ArchiveUnavailable  no permission, no space, no response
    ├── IndexFailed             the temporary index of facts cannot be written or read
    ├── FilesUnavailable        private files: no space, no permission (.where)
    ├── BusClosed               the program has closed the bus
    ├── ViewClosed              the view is not open
    └── LogError                the log
        ├── LogBlocked          an entry added by hand blocks writes (.shard, .stream_id)
        ├── Behind              a read could not catch up within fresh_timeout
        ├── PositionLost        the log was trimmed past the position
        ├── LogRewound          the log is not the one read before
        ├── LogGap              a position is missing, neither trimmed nor erased
        ├── CodeTooOld          an event or state has a newer schema than this code
        └── StateTooOld         the stored state has a format this code no longer reads
"""

from scratchbus.errors.base import ScratchbusError as ScratchbusError
from scratchbus.errors.base import key_text as key_text
from scratchbus.errors.base import shown as shown
from scratchbus.errors.engine import EngineAuth as EngineAuth
from scratchbus.errors.engine import EngineError as EngineError
from scratchbus.errors.engine import EngineForbidden as EngineForbidden
from scratchbus.errors.engine import EngineFull as EngineFull
from scratchbus.errors.engine import EngineLoading as EngineLoading
from scratchbus.errors.engine import EngineMisconfigured as EngineMisconfigured
from scratchbus.errors.engine import EngineMissing as EngineMissing
from scratchbus.errors.engine import EngineNotStarted as EngineNotStarted
from scratchbus.errors.engine import EngineReadOnly as EngineReadOnly
from scratchbus.errors.engine import EngineTooOld as EngineTooOld
from scratchbus.errors.engine import EngineUnreachable as EngineUnreachable
from scratchbus.errors.engine import ForeignData as ForeignData
from scratchbus.errors.engine import NotReplicated as NotReplicated
from scratchbus.errors.engine import for_clients as for_clients
from scratchbus.errors.input import BudgetTooSmall as BudgetTooSmall
from scratchbus.errors.input import InvalidExport as InvalidExport
from scratchbus.errors.input import InvalidField as InvalidField
from scratchbus.errors.input import InvalidId as InvalidId
from scratchbus.errors.input import InvalidInput as InvalidInput
from scratchbus.errors.input import InvalidName as InvalidName
from scratchbus.errors.input import InvalidPosition as InvalidPosition
from scratchbus.errors.input import InvalidSource as InvalidSource
from scratchbus.errors.input import InvalidTTL as InvalidTTL
from scratchbus.errors.input import InvalidURL as InvalidURL
from scratchbus.errors.input import ReadOnlyField as ReadOnlyField
from scratchbus.errors.input import RegistryError as RegistryError
from scratchbus.errors.input import RelationsError as RelationsError
from scratchbus.errors.input import RulesError as RulesError
from scratchbus.errors.input import SettingsError as SettingsError
from scratchbus.errors.input import SettingsFileError as SettingsFileError
from scratchbus.errors.input import ShardsMismatch as ShardsMismatch
from scratchbus.errors.input import TooLarge as TooLarge
from scratchbus.errors.input import Unauthorized as Unauthorized
from scratchbus.errors.input import UnknownField as UnknownField
from scratchbus.errors.input import UnknownRelation as UnknownRelation
from scratchbus.errors.input import UnknownType as UnknownType
from scratchbus.errors.log import ArchiveDamaged as ArchiveDamaged
from scratchbus.errors.log import ArchiveError as ArchiveError
from scratchbus.errors.log import ArchiveForeign as ArchiveForeign
from scratchbus.errors.log import ArchiveUnavailable as ArchiveUnavailable
from scratchbus.errors.log import Behind as Behind
from scratchbus.errors.log import CodeTooOld as CodeTooOld
from scratchbus.errors.log import LogBlocked as LogBlocked
from scratchbus.errors.log import LogError as LogError
from scratchbus.errors.log import LogGap as LogGap
from scratchbus.errors.log import LogRewound as LogRewound
from scratchbus.errors.log import PositionLost as PositionLost
from scratchbus.errors.log import StateTooOld as StateTooOld
from scratchbus.errors.state import ArchiveBusy as ArchiveBusy
from scratchbus.errors.state import BusClosed as BusClosed
from scratchbus.errors.state import Claimed as Claimed
from scratchbus.errors.state import Conflict as Conflict
from scratchbus.errors.state import EventIdReused as EventIdReused
from scratchbus.errors.state import FileGone as FileGone
from scratchbus.errors.state import FilesUnavailable as FilesUnavailable
from scratchbus.errors.state import IndexFailed as IndexFailed
from scratchbus.errors.state import InvalidTransition as InvalidTransition
from scratchbus.errors.state import KeyHeld as KeyHeld
from scratchbus.errors.state import LeaseLost as LeaseLost
from scratchbus.errors.state import NotChangeable as NotChangeable
from scratchbus.errors.state import NotClaimed as NotClaimed
from scratchbus.errors.state import NotDelivered as NotDelivered
from scratchbus.errors.state import NotEmpty as NotEmpty
from scratchbus.errors.state import NotFound as NotFound
from scratchbus.errors.state import NotReady as NotReady
from scratchbus.errors.state import PageFull as PageFull
from scratchbus.errors.state import RebuildHeld as RebuildHeld
from scratchbus.errors.state import RevisionConflict as RevisionConflict
from scratchbus.errors.state import SessionExists as SessionExists
from scratchbus.errors.state import SessionOver as SessionOver
from scratchbus.errors.state import StaleFence as StaleFence
from scratchbus.errors.state import SubscriptionHeld as SubscriptionHeld
from scratchbus.errors.state import SubscriptionMismatch as SubscriptionMismatch
from scratchbus.errors.state import TooManyUnacked as TooManyUnacked
from scratchbus.errors.state import TypeInUse as TypeInUse
from scratchbus.errors.state import VersionConflict as VersionConflict
from scratchbus.errors.state import ViewClosed as ViewClosed
