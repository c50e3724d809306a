/** Rows of the settings table that concern the cluster as a whole, and how its nodes find each other. */
import { IDENTIFIER_RULE } from '../base/text/identifier.js';
import {
  DRAFT_SOURCES,
  HEAD_EXPERTS,
  EXPERT_STORAGES,
  HOMES,
  LOG_FORMATS,
  LOG_LEVELS,
  PREDICTION_SOURCES,
  PROVIDERS,
  ROLES,
  SPREADS,
} from './setting-choices.js';
import { LAYERS_AHEAD_LIMIT, MAX_DRAFT_ROWS, MILLISECONDS_LIMIT, REPLICAS_LIMIT } from './setting-limits.js';
import { forEveryRole, type SettingRows } from './setting.js';
import {
  choice,
  HOST,
  CLUSTER_NAME,
  IDENTIFIER,
  INTERFACE_ADDRESS,
  NODE_ADDRESS,
  PORT,
  SWITCH,
  text,
  wholeNumber,
  wholeNumberOrAuto,
} from './value-kinds.js';

const PACK_HELP = 'the pack (made by `odmoe pack`)';

const JOIN_HELP =
  'join the cluster by this token, the first time (default: ODMOE_JOIN_TOKEN; without one, show a code)';
const REJOIN_HELP = 'forget its key and certificate, and join again with a new key';

/** Keys at the top of cluster.yaml. */
export const CLUSTER_ROWS = {
  cluster: {
    key: 'cluster',
    kind: CLUSTER_NAME,
    default: 'odmoe',
    help: 'Only nodes of the same cluster name work together; several clusters may share a LAN.',
    flag: {
      usage: '--cluster <name>',
      roles: forEveryRole('only nodes of the same cluster name work together'),
    },
  },
  model: {
    key: 'model',
    kind: text('the directory of a pack'),
    default: null,
    shown: 'models/demo-pack',
    help:
      'Directory of the pack, relative to this file. The host of main needs it. If the directory has no pack, a worker fetches the experts ' +
      'that it needs into it. If no model is given, neither here nor in its entry under `nodes`, a worker fetches them into its own directory (under ' +
      '~/.local/share/odmoe/packs), and a shadow fetches the whole pack.',
    inNodes: 'another directory of the same pack on that host',
    flag: {
      usage: '--model <directory>',
      roles: {
        main: PACK_HELP,
        shadow: `${PACK_HELP}; by default main's is fetched into the user's data directory`,
        worker: "the pack, or where to fetch what is needed of main's (by default into the user's data directory)",
      },
    },
  },
  lan: {
    key: 'lan',
    kind: SWITCH,
    default: false,
    help:
      'Daemons listen on every network of their host. The first main that starts so makes the authority of the cluster: from then on connections ' +
      'are TLS, and only machines that were let in may speak. Without it, and without an authority, daemons listen on 127.0.0.1 alone.',
    flag: {
      usage: '--lan',
      roles: {
        main: 'listen on every network; makes the authority of the cluster the first time',
        shadow: 'listen on every network, in a cluster with an authority',
        worker: 'listen on every network, in a cluster with an authority',
      },
    },
  },
  insecure: {
    key: 'insecure',
    kind: SWITCH,
    default: false,
    help:
      'Daemons of a cluster without an authority may listen where other machines reach them. Then whoever is on the network can use the cluster, ' +
      'read what passes and pose as a daemon of it.',
    flag: {
      usage: '--insecure',
      roles: forEveryRole('run where other machines reach it without any protection: anyone on the network gets in'),
    },
  },
} as const satisfies SettingRows;

/** The settings of a single node: only its entry in `nodes`, or a flag, gives them. */
export const NODE_ROWS = {
  id: {
    key: 'id',
    kind: IDENTIFIER,
    default: undefined,
    required: true,
    help: "The node's name. Default: made from its role, host and port.",
    inNodes: 'unique name',
    flag: {
      usage: '--id <name>',
      roles: forEveryRole(`this node's name, which no other node or operator has: ${IDENTIFIER_RULE}`),
    },
  },
  role: {
    key: 'role',
    kind: choice(ROLES),
    default: undefined,
    required: true,
    help: 'The role of the node; on the command line it is the command.',
    inNodes: 'main (one), shadow (at most one) or worker (any number)',
  },
  host: {
    key: 'host',
    kind: HOST,
    default: 'localhost',
    help: 'The host of the node.',
    inNodes:
      'host name or address at which it runs and is reached. Default: localhost, which means every host that runs `odmoe up`. If there are ' +
      'several hosts, name all of them.',
  },
  listenHost: {
    key: 'listen',
    kind: HOST,
    default: undefined,
    help: 'Address to listen on.',
    inNodes:
      "address to listen on. Default: under static discovery the host's address (127.0.0.1 for localhost); under mdns and dns 127.0.0.1, or 0.0.0.0, every " +
      'interface, in a cluster with an authority',
    flag: { usage: '--host <address>', roles: forEveryRole('address to listen on; 0.0.0.0: every interface') },
  },
  listenPort: {
    key: 'port',
    kind: PORT,
    default: undefined,
    help: 'Port to listen on.',
    inNodes: 'default: main 7600, shadow 7601, workers 7602 and the next numbers on the same host',
    flag: { usage: '--port <number>', roles: forEveryRole('port to listen on; 0: any free one') },
  },
  advertiseHost: {
    key: null,
    kind: HOST,
    default: undefined,
    help: "Address that peers are told to dial. Default: the entry's host, or the address of the interface.",
    flag: { usage: '--advertise-host <address>', roles: forEveryRole('address that peers are told to dial') },
  },
  mainAddress: {
    key: null,
    kind: NODE_ADDRESS,
    default: undefined,
    help: 'Address of main. Default: that of the main node under `nodes`; otherwise main is discovered.',
    flag: {
      usage: '--main <host:port>',
      roles: {
        shadow: 'where main is, when it is not to be discovered',
        worker: 'where main is, when it is not to be discovered',
      },
    },
  },
  joinToken: {
    key: null,
    kind: text('a token that `odmoe token create` printed'),
    default: null,
    help:
      'Token by which the daemon joins its cluster the first time. Other users of the host see it in the list of processes: --join-file and the ' +
      'variable ODMOE_JOIN_TOKEN keep it from them.',
    flag: {
      usage: '--join <token>',
      roles: { shadow: JOIN_HELP, worker: JOIN_HELP },
    },
  },
  joinTokenPath: {
    key: null,
    kind: text('a file with a token'),
    default: null,
    help: 'File with the token by which the daemon joins its cluster the first time.',
    flag: {
      usage: '--join-file <file>',
      roles: { shadow: 'a file with that token', worker: 'a file with that token' },
    },
  },
  rejoin: {
    key: null,
    kind: SWITCH,
    default: false,
    help: 'Forgets the key and the certificate of the daemon, and joins its cluster again with a new key.',
    flag: {
      usage: '--rejoin',
      roles: { shadow: REJOIN_HELP, worker: REJOIN_HELP },
    },
  },
} as const satisfies SettingRows;

export const DISCOVERY_ROWS = {
  provider: {
    key: 'provider',
    kind: choice(PROVIDERS),
    default: 'mdns',
    help: 'With mdns nodes announce themselves on the LAN and find each other; with static they are found only at the addresses listed under `nodes`; with dns they are found by the records of `name`, which containers have (docs/containers.md).',
    flag: { usage: '--discovery <provider>', roles: forEveryRole('how nodes find each other') },
  },
  interfaceAddress: {
    key: 'interface',
    kind: INTERFACE_ADDRESS,
    default: null,
    shown: '192.168.1.20',
    help: 'IPv4 address of the network interface that multicast goes through, for hosts with several.',
    flag: {
      usage: '--interface <address>',
      roles: forEveryRole('IPv4 address of the interface that multicast goes through'),
    },
  },
  name: {
    key: 'name',
    kind: text('the name of a service'),
    default: null,
    shown: 'odmoe.default.svc.cluster.local',
    help: 'With dns: the name whose records name the daemons: SRV records _main._tcp.NAME, _shadow._tcp.NAME and _worker._tcp.NAME, or the addresses of main.NAME, shadow.NAME and worker.NAME. They are looked at every 5 s.',
    flag: {
      usage: '--discovery-name <name>',
      roles: forEveryRole('with dns: the name whose records name the daemons'),
    },
  },
} as const satisfies SettingRows;

export const EMULATION_ROWS = {
  profilePath: {
    key: 'profile',
    kind: text('a device profile'),
    default: undefined,
    required: true,
    shown: 'bench/profiles/rtx3090-testbed.yaml',
    help: 'The file that describes devices and network.',
    flag: {
      usage: '--profile <file>',
      roles: forEveryRole('take the time and memory of the devices and network described there (bench/profiles)'),
    },
  },
  expertStorage: {
    key: 'expert_storage',
    kind: choice(EXPERT_STORAGES),
    default: 'fp32',
    help: "How the profiled workers store experts: fp32, or one of a pack's formats.",
    flag: {
      usage: '--expert-storage <form>',
      roles: forEveryRole('how the profiled workers store experts'),
    },
  },
} as const satisfies SettingRows;

export const PREDICTION_ROWS = {
  source: {
    key: 'source',
    kind: choice(PREDICTION_SOURCES),
    default: 'sep',
    help:
      "The source of predictions of experts: sep (shadow), router-ahead (main's own routers of later layers), trained (maps that odmoe fit has " +
      'made for the pack), random, or off (experts are loaded after the router has chosen them). The last two are for comparison; only sep uses a ' +
      'shadow, and it also uses the maps, if the pack has some, where shadow has not spoken.',
    flag: { usage: '--prediction <source>', roles: { main: 'where predictions of experts come from' } },
    drawn: ['sep', 'sep', 'sep', 'router-ahead', 'trained', 'random', 'off'],
    simplest: 'off',
  },
  layersAhead: {
    key: 'layers_ahead',
    kind: wholeNumber(1, LAYERS_AHEAD_LIMIT),
    default: 1,
    help: 'With router-ahead: main asks the router of the layer that is this many layers further on.',
    flag: {
      usage: '--layers-ahead <count>',
      roles: { main: 'with --prediction router-ahead: the router so many layers further on' },
    },
    drawn: [1, 2],
  },
} as const satisfies SettingRows;

const ALIGN_PERIOD = wholeNumber(0, 1_000_000);

export const ALIGN_ROWS = {
  tokenPeriod: {
    key: 'token',
    kind: ALIGN_PERIOD,
    default: 1,
    help: 'Iterations between two alignments by tokens; 0: never.',
    flag: { usage: '--align-token <period>', roles: { main: 'iterations between token alignments; 0: never' } },
    drawn: [1, 1, 1, 1, 2, 4, 0],
  },
  keyValuePeriod: {
    key: 'kv',
    kind: ALIGN_PERIOD,
    default: 1,
    help: 'Iterations between two alignments by keys and values; 0: never.',
    flag: { usage: '--align-kv <period>', roles: { main: 'iterations between KV alignments; 0: never' } },
    drawn: [1, 1, 1, 3, 0],
  },
  streamKeyValues: {
    key: 'stream_kv',
    kind: SWITCH,
    default: true,
    help: 'Main sends key and value rows to shadow layer by layer while an iteration runs; false: all at its end.',
    flag: {
      usage: '--no-stream-kv',
      roles: { main: 'send key and value rows to shadow at the end of an iteration, not layer by layer' },
    },
  },
} as const satisfies SettingRows;

export const DRAFTING_ROWS = {
  optimistic: {
    key: 'optimistic',
    kind: SWITCH,
    default: false,
    help: "Shadow continues from its own guess before main's token has arrived, and starts again if the guess was wrong.",
    flag: {
      usage: '--optimistic',
      roles: { main: "let shadow go on from its own guess before main's token is there" },
    },
  },
  rows: {
    key: 'rows',
    kind: wholeNumberOrAuto(1, MAX_DRAFT_ROWS),
    default: 'auto',
    help:
      'Positions that main runs in one pass: its own token and drafts of the tokens after it, which main verifies. 1: no drafts; auto: the number ' +
      'with the most tokens a second, by what drafts and passes have shown. Beside a shadow, drafts need align.token 1.',
    flag: {
      usage: '--draft-rows <count>',
      roles: { main: `positions of one pass, drafts included, at most ${MAX_DRAFT_ROWS}; auto: as many as pay` },
    },
    drawn: [1, 1, 2, 3, 4, 'auto'],
    simplest: 1,
  },
  source: {
    key: 'source',
    kind: choice(DRAFT_SOURCES),
    default: 'auto',
    help:
      'Who drafts. shadow: only shadow, and experts are dealt to all workers; lookup: main, which takes the tokens that stand behind the same tokens ' +
      "earlier in prompt or answer, or in the text that the client expects; mtp: lookup and the model's own head for further tokens, which main then " +
      'loads; auto: lookup, and shadow, too, where drafting.rows is a number. The surest drafts run; tokens that a format forces cost nothing.',
    flag: { usage: '--draft-source <source>', roles: { main: 'who drafts: auto, shadow, lookup, or mtp' } },
    drawn: ['shadow', 'auto', 'lookup', 'mtp'],
    simplest: 'shadow',
  },
  headExperts: {
    key: 'head_experts',
    kind: choice(HEAD_EXPERTS),
    default: 'auto',
    help:
      "Where the experts of the model's own head run (source mtp). main: in main's memory; workers: on the workers, as those of one more layer; auto: in " +
      "main's memory where they take at most half of what its budget leaves (without a budget: of what the GPU or the machine has left), else on the workers.",
    flag: {
      usage: '--head-experts <where>',
      roles: { main: "where the experts of the model's own head run: auto, main, or workers" },
    },
    drawn: ['auto', 'main', 'workers', 'workers'],
  },
} as const satisfies SettingRows;

export const PLACEMENT_ROWS = {
  groupSize: {
    key: 'group_size',
    kind: wholeNumberOrAuto(1, 1024),
    default: 'auto',
    help:
      'Workers that serve one layer. With auto a layer takes the least time to execute its experts and reach its workers; if loads take longer than ' +
      'that, as many workers as possible share a layer (odmoe status says why).',
    flag: {
      usage: '--group-size <count>',
      roles: { main: 'workers that serve a layer; auto: by what executing, reaching and loading cost' },
    },
    drawn: ['auto', 1, 2, 3],
  },
  spread: {
    key: 'spread',
    kind: choice(SPREADS),
    default: 'group',
    help: "Workers that an expert may go to: the layer's group (group), or any free worker (all). Drafts use all in any case.",
    flag: { usage: '--spread <range>', roles: { main: 'workers that an expert may go to' } },
    drawn: ['group', 'all'],
  },
  homes: {
    key: 'homes',
    kind: choice(HOMES),
    default: 'group',
    help:
      'Experts belong to the group of their layer (group), or each expert has one worker (strict). With strict a worker stores on its disk and loads ' +
      'only its part of the experts, and caches as many of them as fit into its memory budget. Spread and group size then have no effect.',
    flag: {
      usage: '--homes <whose>',
      roles: {
        main: 'experts belong to the group of their layer, or each to a worker of its own; say it to workers, too',
        worker: "as main's; strict: keeps experts of its own in what slots leave of the budget",
      },
    },
    drawn: ['group', 'group', 'group', 'strict'],
  },
  replicas: {
    key: 'replicas',
    kind: wholeNumber(1, REPLICAS_LIMIT),
    default: 1,
    help:
      'With strict homes: the number of workers that have the same expert, 1 or 2. With 2 nearly every expert still has a worker when one worker is ' +
      'lost; the missing second copies are then fetched.',
    flag: {
      usage: '--replicas <count>',
      roles: { main: 'with --homes strict: workers that have the same expert' },
    },
  },
} as const satisfies SettingRows;

export const NETWORK_ROWS = {
  keepaliveIntervalMs: {
    key: 'keepalive_interval_ms',
    kind: wholeNumber(50, MILLISECONDS_LIMIT),
    default: 500,
    help:
      'Time between two pings of a peer. A peer that does not answer a ping within the timeout counts as lost. Interval and timeout together bound ' +
      'how long a stopped worker delays an answer.',
  },
  keepaliveTimeoutMs: {
    key: 'keepalive_timeout_ms',
    kind: wholeNumber(50, MILLISECONDS_LIMIT),
    default: 700,
    help: 'The bound on a quiet network; it grows up to 5000 when replies come late or unevenly.',
  },
  executeTimeoutMs: {
    key: 'execute_timeout_ms',
    kind: wholeNumber(1, MILLISECONDS_LIMIT),
    default: 30_000,
    help: 'A worker that owes results and has sent none for this long counts as lost. Loading and running an expert must take less.',
    flag: {
      usage: '--execute-timeout <ms>',
      roles: { main: 'a worker that owes answers and gives none for so long is lost' },
    },
  },
  reconnectDelayMs: {
    key: 'reconnect_delay_ms',
    kind: wholeNumber(1, MILLISECONDS_LIMIT),
    default: 500,
    help: 'Pause before a lost peer is dialled again.',
  },
} as const satisfies SettingRows;

export const LOG_ROWS = {
  level: {
    key: 'level',
    kind: choice(LOG_LEVELS),
    default: 'warn',
    help: 'error, warn, info (one line for each event) or debug; the log goes to standard error.',
    flag: { usage: '--log-level <level>', roles: forEveryRole('info: one line an event; the default is warn') },
  },
  format: {
    key: 'format',
    kind: choice(LOG_FORMATS),
    default: 'text',
    help: 'text, or json: one object a line.',
    flag: { usage: '--log-format <format>', roles: forEveryRole('lines for people or for programs') },
  },
} as const satisfies SettingRows;
