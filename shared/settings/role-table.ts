/** Rows of the settings table that concern one role: devices, main, shadow and workers. */
import { formatByteSize } from '../base/text/byte-size.js';
import { EXACT_QUALITY } from './quality.js';
import { CACHE_POLICIES } from './cache-policies.js';
import {
  ARITHMETICS,
  EXPERTS,
  INSTRUCTION_SETS,
  SHADOW_PRECISIONS,
  QUANTIZED,
  WEIGHT_FORMS,
} from './setting-choices.js';
import {
  MAX_ACTIVE_SEQUENCES,
  MILLISECONDS_LIMIT,
  PASS_ROWS_LIMIT,
  RECORDED_TOKENS_LIMIT,
  READ_DEPTH_LIMIT,
  REPLAN_PASSES,
  THREADS_LIMIT,
  WORKER_BUDGET_DEFAULT_BYTES,
} from './setting-limits.js';
import { forEveryRole, forLoading, type SettingRows } from './setting.js';
import {
  BYTE_SIZE,
  BYTE_SIZE_OR_AUTO,
  choice,
  CONTEXT_MEMORY,
  DEVICE_NAME,
  HOSTS,
  HTTP_ADDRESS,
  ORIGINS,
  POOL_SIZES,
  QUALITY,
  SHARE,
  STORE_SIZE,
  SWITCH,
  text,
  wholeNumber,
  wholeNumberOrAuto,
} from './value-kinds.js';

const BUDGET_HELP = `device memory it may take, a GPU's context included, such as "512 MiB"; 0: no limit`;

/** A role's section has those of them that name it in `inSections`; they apply to nodes of the role without a value of their own. */
export const DEVICE_ROWS = {
  device: {
    key: 'device',
    kind: DEVICE_NAME,
    default: 'auto',
    help:
      "The device: auto takes a usable GPU that, within the memory budget, has room for the driver's context and the node's data; otherwise it takes " +
      'the processor. The other values are cpu, cuda (the first usable GPU; it is an error if there is none) and cuda:N (this GPU).',
    inNodes: 'auto, cpu, cuda, or cuda:N for the N-th device (from 0). Default: the value in the section of its role',
    inSections: ['main', 'shadow', 'worker'],
    flag: { usage: '--device <name>', roles: forEveryRole('auto (default), cpu, cuda or cuda:N') },
  },
  arithmetic: {
    key: 'arithmetic',
    kind: choice(ARITHMETICS),
    default: 'exact',
    help: 'exact, or fast: a GPU may use tensor cores, and answers may then differ in bits from those of other machines.',
    inNodes: 'exact or fast, on a GPU. Default: the value in the section of its role',
    inSections: ['main', 'shadow', 'worker'],
    flag: {
      usage: '--arithmetic <kind>',
      roles: forEveryRole("of a GPU; fast: tensor cores, not to the bit what others' is"),
    },
  },
  threads: {
    key: 'threads',
    kind: wholeNumber(0, THREADS_LIMIT),
    default: 0,
    help: 'Processor threads; 0: as many as the process may use.',
    inNodes: 'processor threads; 0: as many as the process may use (default)',
    flag: { usage: '--threads <count>', roles: forEveryRole('processor threads; 0: as many as the process may use') },
  },
  memoryBudgetBytes: {
    key: 'memory_budget',
    kind: BYTE_SIZE,
    default: undefined,
    shown: '1 GiB',
    help:
      "Device memory that it may take; 0: no limit. On a GPU the budget includes the driver's context, the slots, and the cache's data in host " +
      "memory. Under emulation the default is the worker's memory in the profile.",
    inNodes:
      'device memory it may take, "2 GiB" or a number of bytes; 0: no limit (default of main and shadow). On a GPU the driver\'s context ' +
      'counts too',
    inSections: ['worker'],
    flag: {
      usage: '--memory-budget <size>',
      roles: {
        ...forEveryRole(`${BUDGET_HELP} (default)`),
        worker: `${BUDGET_HELP} (default: ${formatByteSize(WORKER_BUDGET_DEFAULT_BYTES)})`,
      },
    },
  },
  instructionSet: {
    key: 'instruction_set',
    kind: choice(INSTRUCTION_SETS),
    default: 'auto',
    help: 'Vector instructions of the processor.',
    inNodes: 'for the processor: auto (default), avx512, avx2, neon or scalar',
    flag: { usage: '--instruction-set <name>', roles: forEveryRole('vector instructions of the processor') },
  },
} as const satisfies SettingRows;

export const SHADOW_ROWS = {
  precision: {
    key: 'precision',
    kind: choice(SHADOW_PRECISIONS),
    default: 'int8',
    help:
      "How shadow's copy of the model is quantized: int8, fp16 or nf4; or its experts are sliced, as sliced(8,4), or sliced(8,4,low) for the upper 4 bits " +
      'alone, and all else is int8; or auto: of these but fp16 the one that predicts best in the memory of its box.',
    flag: { usage: '--precision <format>', roles: { shadow: 'how the copy is quantized' } },
    drawn: ['int8', 'nf4', 'fp16'],
  },
  quantize: {
    key: 'quantize',
    kind: choice(QUANTIZED),
    default: 'projections',
    help: 'The quantized tensors: projections and experts, or all: embedding, routers and LM head, too.',
    flag: {
      usage: '--quantize <what>',
      roles: { shadow: 'projections and experts, or embedding, routers and LM head, too' },
    },
    drawn: ['projections', 'all'],
  },
} as const satisfies SettingRows;

const RESIDENT_HELP =
  'fixed4 gives the same answers from fewer bytes, auto measures what is faster (default: as shipped)';

export const MAIN_ROWS = {
  experts: {
    key: 'experts',
    kind: choice(EXPERTS),
    default: 'workers',
    help:
      "The place where experts run: workers (on workers of the LAN), local (only on a worker in main's own process, on main's device), or both. Main's own worker " +
      'takes slots and cache from `worker` below. If main has a memory budget, its own worker caches experts in all memory that answers do not use ' +
      '(or in `worker.cache`), and gives it back when answers need it.',
    flag: {
      usage: '--experts <where>',
      roles: { main: 'who runs experts: workers (default), this process alone, or both' },
    },
  },
  resident: {
    key: 'resident',
    kind: choice(WEIGHT_FORMS),
    default: null,
    shown: 'auto',
    help:
      "The form of main's own weights in memory: bf16 (as shipped, for a model shipped in BF16), fixed4 (the same values, and the same answers, from " +
      "three quarters of BF16's bytes), or auto (measures for half a second at the start which is faster on this machine). Default: as shipped.",
    flag: {
      usage: '--resident <format>',
      roles: { main: `how main's own weights, and what its own worker keeps, are kept: ${RESIDENT_HELP}` },
    },
  },
  quality: {
    key: 'quality',
    kind: QUALITY,
    default: EXACT_QUALITY,
    shown: 'exact',
    help:
      'How exactly experts are computed. exact: as they are shipped. A sliced quality loads fewer bytes and changes answers; all workers and main need ' +
      'the same one, and slices of one pack (`odmoe pack --slices`). sliced(8,4): codes of 8 bits; sliced(8,4,low): their upper 4 bits alone; ' +
      'sliced(8,4,critical=0.3): 8 bits for the three tenths of executions that the router weighs most, else 4; ' +
      'sliced(8,4,cached=1.8GB,miss=0.05): bits and experts follow a cache that the sequence imagines, by rules that dbsc and routing name. ' +
      'Also (6,3) and (4,2).',
    flag: {
      usage: '--quality <text>',
      roles: {
        main: "exact (default), or sliced experts, as in 'sliced(8,4,low)': fewer bytes to load, other answers",
        worker: "main's quality: exact (default), or as in 'sliced(8,4,low)'",
      },
    },
  },
  maxActiveSequences: {
    key: 'max_active_sequences',
    kind: wholeNumberOrAuto(1, MAX_ACTIVE_SEQUENCES),
    default: 'auto',
    help: `Answers in progress at a time; auto: as many as fit into memory, at most ${MAX_ACTIVE_SEQUENCES}.`,
    flag: {
      usage: '--max-active <count>',
      roles: { main: 'answers in progress at a time; auto: as many as memory admits' },
    },
    drawn: ['auto', 'auto', 1, 2, 3, 4, 16],
    simplest: 1,
  },
  maxQueuedRequests: {
    key: 'max_queued_requests',
    kind: wholeNumber(0, 1_000_000),
    default: 64,
    help: 'Requests that may wait for their turn.',
    drawn: [1, 8, 16],
  },
  maxContextPositions: {
    key: 'max_context_positions',
    kind: wholeNumber(0, 2 ** 31 - 1),
    default: 0,
    help:
      "Positions of prompt and answer together; 0: the model's own limit. More than that goes past what the model was made for: answers to long prompts " +
      'may make no sense. Shadow follows such long answers only with the same value.',
    flag: {
      usage: '--max-context <positions>',
      roles: {
        main: "prompt and answer together, also past the model's own limit; 0 (default): that limit",
        shadow: "as main has it, where that is past the model's own limit",
      },
    },
  },
  contextMemoryBytes: {
    key: 'context_memory',
    kind: CONTEXT_MEMORY,
    default: 'auto',
    help:
      'Memory for the rows of all sequences and for retained rows of earlier ones: a size, or auto (the rest of the memory budget; without a budget, ' +
      "half of the host's free memory at the start). With a budget and a size, the smaller of both is the bound. If memory is short, retained rows " +
      'are dropped first; then the youngest answers give their rows back, and are computed again when there is room.',
    flag: {
      usage: '--context-memory <size>',
      roles: {
        main: 'memory for the rows of all sequences and of kept prefixes, such as "4 GiB"; auto (default): what there is',
      },
    },
  },
  reusePrefixes: {
    key: 'reuse_prefixes',
    kind: SWITCH,
    default: true,
    help: 'If a prompt has the same beginning as an earlier one, main and shadow use the earlier rows again; false: every prompt is run completely.',
    flag: {
      usage: '--no-reuse-prefixes',
      roles: { main: 'run every prompt whole, also where an earlier one began alike' },
    },
    simplest: false,
  },
  prefixStoreBytes: {
    key: 'prefix_store',
    kind: STORE_SIZE,
    default: 0,
    help:
      "Most bytes of a store on main's disk for rows of prompts and answers, in the cluster's state directory: a prompt that begins like an earlier one of " +
      'the same API key is not run again after a restart of main, or when its rows have left the memory. 0: there is no store, and what an earlier one ' +
      'has left is deleted. The rows reveal prompts to whoever can read the files.',
    flag: {
      usage: '--prefix-store <size>',
      roles: {
        main: 'keep rows of prompts on disk, such as "100 GiB", for the time after a restart; 0 (default): none',
      },
    },
    drawn: [0, 0, 100_000, 1_073_741_824],
  },
  recordTokens: {
    key: 'record_tokens',
    kind: wholeNumber(0, RECORDED_TOKENS_LIMIT),
    default: 0,
    help:
      'Number of tokens of answers that main records for "odmoe fit PACK --record": states and routers\' choices, no text, in the pack\'s directory. ' +
      'Fewer than 4096 are too few for it. 0: none. Whoever reads the file can guess the texts.',
    flag: {
      usage: '--record-tokens <count>',
      roles: { main: 'record states of so many tokens of answers, for odmoe fit --record; 0 (default): none' },
    },
    drawn: [0, 0, 0, 7, 1000],
  },
  prefillRows: {
    key: 'prefill_rows',
    kind: wholeNumber(1, PASS_ROWS_LIMIT),
    default: 256,
    help: 'Tokens of a prompt in one pass while no answer waits for its next token.',
    drawn: [1, 3, 8, 64],
  },
  miniBatchRows: {
    key: 'mini_batch_rows',
    kind: wholeNumber(1, PASS_ROWS_LIMIT),
    default: 32,
    help: 'Tokens of a prompt in one message to a worker.',
    drawn: [1, 2, 5, 64],
  },
  prefillOverlap: {
    key: 'prefill_overlap',
    kind: SWITCH,
    default: true,
    help:
      "In prefill a layer's experts load while the previous layer runs, if the rows are expected to use nearly all of them; false: they load after the " +
      'router has chosen, and rows are sent when all are loaded.',
    flag: {
      usage: '--no-prefill-overlap',
      roles: {
        main: "load a layer's experts in prefill once the router has chosen, and send rows when all are there",
      },
    },
    simplest: false,
  },
  workerGraceMs: {
    key: 'worker_grace_ms',
    kind: wholeNumber(0, MILLISECONDS_LIMIT),
    default: 2000,
    help: 'How long a request waits for a worker to come back when none is left.',
  },
  stopGraceMs: {
    key: 'stop_grace_ms',
    kind: wholeNumber(0, MILLISECONDS_LIMIT),
    default: 30_000,
    help:
      'When main is stopped (SIGTERM, Ctrl-C, `odmoe down`): how long accepted requests may go on, while new ones are refused. A second signal ends ' +
      'main at once.',
    flag: {
      usage: '--stop-grace-ms <ms>',
      roles: {
        main: 'on SIGTERM or Ctrl-C: how long answers under way may go on (default: 30000); a second one ends main at once',
      },
    },
    drawn: [0, 200, 30_000],
  },
  verifyShare: {
    key: 'verify_share',
    kind: SHARE,
    default: 0,
    help:
      'The share of expert executions that main has another worker run again, after it has used the result, to compare the bits; 0: none. A worker that gave ' +
      'other bits than others do is set aside. Each check costs one execution, and a load where the other worker has not cached the expert. It needs two ' +
      'workers for each expert: with `placement.homes: strict`, `placement.replicas: 2`.',
    flag: {
      usage: '--verify-share <share>',
      roles: {
        main: 'share of expert executions that another worker runs again, to find workers that lie; 0 (default) to 1',
      },
    },
    drawn: [0, 0, 0, 0.2, 1],
  },
} as const satisfies SettingRows;

/** Keys of the section `main` that concern its HTTP API. */
export const HTTP_ROWS = {
  address: {
    key: 'http',
    kind: HTTP_ADDRESS,
    default: undefined,
    shown: '127.0.0.1:7680',
    help:
      'Address for HTTP clients (docs/http.md): HOST:PORT (port 0: any free port), or off. If this key is not set and the default port is in use, main ' +
      'takes a free port, which `odmoe status` shows. An address that other machines can reach needs api_keys.',
    flag: {
      usage: '--http <address>',
      roles: { main: 'HOST:PORT where HTTP clients are served (default: 127.0.0.1:7680), or off' },
    },
  },
  hosts: {
    key: 'http_hosts',
    kind: HOSTS,
    default: [],
    help: "Names other than this machine's own that clients may use for it (Host header).",
    flag: {
      usage: '--http-hosts <names>',
      roles: { main: 'names beside its own by which HTTP clients may ask, with commas between them' },
    },
  },
  origins: {
    key: 'http_origins',
    kind: ORIGINS,
    default: [],
    help: 'Origins of web pages that may send requests, for example https://chat.example.org; "*" allows any origin.',
  },
  apiKeysPath: {
    key: 'api_keys',
    kind: text('a file of API keys, one a line, or auto'),
    default: null,
    shown: 'api-keys.txt',
    help:
      'File with one API key a line, relative to this file; auto: main makes a key with the role of an operator, once, keeps it in its state directory, ' +
      'and prints the link of the page with it. The variable ODMOE_API_KEYS of main adds others. A key may ask and nothing else; one with ' +
      '`role: operator` behind it on its line may also let machines into the cluster and remove them.',
    flag: {
      usage: '--api-keys <file|auto>',
      roles: {
        main: 'API keys of HTTP clients, one a line, or auto: main makes one ("role: operator" behind one: it may let machines in); needed where others can reach the address',
      },
    },
  },
} as const satisfies SettingRows;

export const BATCHING_ROWS = {
  enabled: {
    key: 'enabled',
    kind: SWITCH,
    default: true,
    help: 'Each pass runs rows of all sequences; false: a pass has one sequence, and several passes run side by side.',
    flag: {
      usage: '--batching <on|off>',
      roles: { main: 'on: one pass runs rows of all sequences; off: one sequence a pass' },
    },
    simplest: false,
  },
  maxRows: {
    key: 'max_rows',
    kind: wholeNumber(1, PASS_ROWS_LIMIT),
    default: 256,
    help: 'Most tokens of one pass: tokens of all answers, their drafts, and prompts.',
    flag: {
      usage: '--max-rows <count>',
      roles: { main: 'rows of one pass: of all answers, their drafts, and prompts' },
    },
  },
  maxDelayMs: {
    key: 'max_delay_ms',
    kind: wholeNumberOrAuto(0, MILLISECONDS_LIMIT),
    default: 'auto',
    help:
      "How long tokens of prompts may delay an answer's next token, in milliseconds. With auto a pass with tokens of prompts takes at most 1.25 times " +
      'as long as without them if that time is 200 ms or more, at most 4 times as long if it is 50 ms or less. Some tokens of prompts run in any case.',
    drawn: ['auto', 'auto', 0, 2, 50],
  },
} as const satisfies SettingRows;

export const WORKER_ROWS = {
  slots: {
    key: 'slots',
    kind: wholeNumberOrAuto(1, 1024),
    default: 'auto',
    help: 'Experts loaded or executed at a time; auto: as many as a token has experts if they are small, and at least two.',
    inNodes: 'workers only: experts loaded or executed at a time',
    flag: {
      usage: '--slots <count>',
      roles: forLoading('experts loaded or executed at a time; auto: by their size and how many a token needs'),
    },
    simplest: 2,
  },
  cacheBytes: {
    key: 'cache',
    kind: BYTE_SIZE,
    default: undefined,
    shown: '0',
    help:
      'Device memory, within the budget, for experts, or parts or slices of experts, that are used often; 0: no cache, every expert is dropped after use. With ' +
      'strict homes the default is the memory budget.',
    inNodes: 'workers only: device memory for experts that are used often',
    flag: {
      usage: '--cache <size>',
      roles: {
        main:
          "main's own worker: memory for experts that are used often, of the budget; 0 (default): with a budget what answers leave of it, " +
          'else none',
        worker: 'memory for experts that are used often, of the budget; 0: none (default)',
      },
    },
  },
  cachePolicy: {
    key: 'cache_policy',
    kind: choice(CACHE_POLICIES),
    default: undefined,
    shown: 'planned',
    help:
      'planned divides the cache between whole experts and compressed parts of experts, in the way that saves most time on this machine with this ' +
      'model. lru, fifo and marking cache whole experts. popularity caches only the experts that were used most in earlier runs. residency caches ' +
      'whole and compressed experts, and divides the cache again and again while answers run: less memory if computing hides the loads, more if ' +
      "computing waits for them. For main's own worker with a memory budget the default is lru, and planned is refused. sliced is for a sliced quality, " +
      'the default there and the only one: one cache of slices over all layers, in which upper slices leave by LRU, and lower slices leave before any ' +
      'upper one.',
    flag: { usage: '--cache-policy <name>', roles: forLoading('what is kept') },
    simplest: 'planned',
  },
  resident: {
    key: 'resident',
    kind: choice(WEIGHT_FORMS),
    default: null,
    shown: 'auto',
    help:
      'The form of whole BF16 experts in the cache: bf16 (as loaded), fixed4 (the same values, and the same answers, from three quarters of the bytes; ' +
      'the worker converts experts while it has nothing to do, and needs memory for one more expert), or auto (measures at the start which is faster ' +
      "on this machine). Not for main's own worker with a memory budget. Default: as loaded.",
    flag: {
      usage: '--resident <format>',
      roles: { worker: `how whole BF16 experts of the cache are kept: ${RESIDENT_HELP}` },
    },
  },
  replanPasses: {
    key: 'replan_passes',
    kind: wholeNumber(1, 1_000_000),
    default: REPLAN_PASSES,
    help: 'With residency: passes between two divisions.',
    drawn: [1, 2, 8],
  },
  hostMemory: {
    key: 'host_memory',
    kind: BYTE_SIZE_OR_AUTO,
    default: 0,
    help:
      'Host memory, in addition to device memory, for stored experts: loading these reads nothing from the disk. Values are "8 GiB", a number of ' +
      'bytes, auto (as much as the host can spare), or 0 (none). The worker fills it in the background, the most used experts first, and gives it ' +
      'back when the host runs short of memory.',
    inNodes: 'workers only: host memory for stored experts',
    flag: {
      usage: '--host-memory <size>',
      roles: forLoading('host memory for experts as they are stored, or auto; 0: none (default)'),
    },
  },
  pools: {
    key: 'pools',
    kind: POOL_SIZES,
    default: null,
    shown: ['', '  full: 0', '  compressed: 0', '  sign_mantissa: 0', '  exponent: 0'].join('\n'),
    help: 'In place of `cache`: the number of experts in each pool, over all layers.',
  },
  decompressionThreads: {
    key: 'decompression_threads',
    kind: wholeNumber(0, THREADS_LIMIT),
    default: 0,
    help: 'Threads that decompress experts; 0: chosen for the machine.',
    flag: {
      usage: '--decompression-threads <count>',
      roles: forLoading('threads that decompress experts; 0: by the machine'),
    },
  },
  directIo: {
    key: 'direct_io',
    kind: SWITCH,
    default: false,
    help: 'Read experts with direct I/O, past the page cache, if the file system supports it.',
    flag: { usage: '--direct-io', roles: forLoading('read experts past the page cache where possible') },
  },
  readDepth: {
    key: 'read_depth',
    kind: wholeNumberOrAuto(1, READ_DEPTH_LIMIT),
    default: 'auto',
    help: `Reads in flight at a time, 1 to ${READ_DEPTH_LIMIT}; auto: as many as make the storage faster, measured at the start in about half a second.`,
    drawn: [1, 2, 4, 8],
    simplest: 1,
  },
} as const satisfies SettingRows;
