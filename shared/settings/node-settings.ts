import type { LogSettings } from '../base/log/logger.js';
import type { CachePolicy, PoolCapacities } from './cache-policies.js';

/** All settings of one daemon: cluster.yaml and the flags, resolved and checked. No setting is optional from here on. */
export type RoleSetting = 'main' | 'shadow' | 'worker';

export interface KnownPeer {
  role: RoleSetting;
  /** Empty if the configuration gives no id. */
  id: string;
  /** "host:port". */
  address: string;
}

export interface NodeSettings {
  role: RoleSetting;
  id: string;
  cluster: string;
  /** Directory of records that outlast the daemon. */
  stateDirectory: string;
  /** Directory of the pack; null: the worker's own directory, into which it fetches main's pack. */
  modelPath: string | null;
  /** Address to listen on, and port (0: any free one). */
  listenHost: string;
  listenPort: number;
  /** Address that peers are to dial; null: derived from listenHost or the interface. */
  advertiseHost: string | null;
  discovery: {
    provider: 'mdns' | 'static';
    /** IPv4 address of the interface for multicast; null: the system's choice. */
    interfaceAddress: string | null;
    /** The other daemons of cluster.yaml; empty under mdns unless listed. */
    peers: KnownPeer[];
  };
  /** Address of main, to which a worker or shadow announces itself; null: it waits to be found. */
  mainAddress: string | null;
  device: {
    /** auto: a GPU if one can be used and the budget holds its context, else the processor. Under emulation: the processor. */
    backend: 'auto' | 'cpu' | 'cuda';
    /** Number of the CUDA device, as the driver counts them; null: the first that can be used. */
    device: number | null;
    /** For a GPU. fast: it may use tensor cores; answers then differ from those of other nodes in some bits. */
    arithmetic: 'exact' | 'fast';
    /** For the processor. */
    instructionSet: 'auto' | 'avx512' | 'avx2' | 'neon' | 'scalar';
    /** For the processor. 0: as many as the process may use. */
    threads: number;
    /** 0: no limit. For a GPU it includes the driver's context. Under emulation it is the memory of the profiled device. */
    memoryBudgetBytes: number;
  };
  main: {
    /** The place where experts run: on workers of the LAN, on a worker in main's own process alone (local), or on both. */
    experts: 'workers' | 'local' | 'both';
    /** Most answers in progress at a time; auto: as many as memory admits. */
    maxActiveSequences: number | 'auto';
    maxQueuedRequests: number;
    /** Most positions of prompt and answer together; 0: the model's own limit. */
    maxContextPositions: number;
    /** Memory for the rows of all sequences and of retained prefixes; auto: the rest of the device's budget, or half of the host's free memory. */
    contextMemoryBytes: number | 'auto';
    /** Rows of earlier requests are used again if a prompt begins in the same way. */
    reusePrefixes: boolean;
    /** Rows of one prefill pass. */
    prefillRows: number;
    /** Rows of one prefill message to a worker. */
    miniBatchRows: number;
    /**
     * Format of its own BF16 matrices in memory: as shipped (null, or 'bf16' for a model shipped so), or 'fixed4', which computes the same bits
     * from fewer bytes; 'auto' measures which of the two is faster.
     */
    resident: Resident | null;
    /**
     * true: a layer's experts load while the layer before runs. false: they load after the router has chosen, and rows are sent once all experts
     * are loaded.
     */
    prefillOverlap: boolean;
    /** Longest wait of a request for a worker when none is left. */
    workerGraceMs: number;
    /** Longest time that answers in progress may go on after main got the order to stop. */
    stopGraceMs: number;
    /** The HTTP API; null: off. */
    http: HttpSettings | null;
  };
  batching: {
    /** true: one pass runs rows of all sequences; false: one sequence a pass. */
    enabled: boolean;
    /** Most rows of one pass. */
    maxRows: number;
    /**
     * Longest delay of other sequences' tokens by rows of a prompt. auto: such a pass takes at most 1.25 times as long as without these rows if
     * that is 200 ms or more, and at most 4 times as long if it is 50 ms or less.
     */
    maxDelayMs: number | 'auto';
  };
  /** The processor computes with the times and memory of profiled devices and a profiled network; null: no emulation. */
  emulation: EmulationSettings | null;
  prediction: {
    /**
     * The source of predictions of experts: shadow (sep), main's own routers of later layers (router-ahead), random numbers, or none (experts
     * are loaded once the router has chosen).
     */
    source: 'sep' | 'router-ahead' | 'random' | 'off';
    /** For router-ahead: the number of expert layers from the present one to the router that predicts. */
    layersAhead: number;
  };
  align: {
    /** Iterations between two alignments by tokens; 0: never. */
    tokenPeriod: number;
    keyValuePeriod: number;
    /** true: key and value rows are sent layer by layer while the iteration runs; false: at its end. */
    streamKeyValues: boolean;
  };
  drafting: {
    /** Shadow goes on from its own guess before main's token has arrived. */
    optimistic: boolean;
    /** Positions of one pass: main's token and the drafts behind it. 1: no drafts; auto: the number that measurements show to be fastest. */
    rows: number | 'auto';
  };
  placement: {
    groupSize: number | 'auto';
    /** group: experts go to the layer's group; all: they go to any worker that is free for them. */
    spread: 'group' | 'all';
    /** group: experts belong to the group of their layer; strict: each belongs to certain workers. */
    homes: 'group' | 'strict';
    /** For strict homes: workers that have the same expert. */
    replicas: number;
  };
  shadow: {
    precision: 'int8' | 'fp16' | 'nf4';
    /** The quantized tensors. projections: projections and experts; all: also embedding, routers and LM head. */
    quantize: 'projections' | 'all';
  };
  worker: {
    /** Working slots: most experts that may be loaded or executed at a time. auto: by the experts of a token and their size. */
    slots: number | 'auto';
    /** Device memory for cached experts and parts of them; 0: none, the worker is cacheless. */
    cacheBytes: number;
    cachePolicy: CachePolicy;
    /** Format of full BF16 experts in the cache, as main.resident. fixed4 is made from loaded experts while the worker is idle. */
    resident: Resident | null;
    /** True for main's own worker on a device with a budget: its cached experts yield to the rows of sequences. */
    yields: boolean;
    /** For policy residency: passes between two plannings. */
    replanPasses: number;
    /** Host memory for stored bytes of experts, so that loads need not read them from storage; auto: the memory that the host can spare; 0: none. */
    hostMemory: number | 'auto';
    /** Most experts in each pool, in place of a plan for cacheBytes; null: plan. */
    pools: PoolCapacities | null;
    /** 0: chosen by the machine. */
    decompressionThreads: number;
    /** Reads go past the page cache where the file system allows it. */
    directIo: boolean;
    /** Reads of storage in flight at a time; auto: as many as make reads faster, measured at the start. */
    readDepth: number | 'auto';
  };
  network: {
    keepaliveIntervalMs: number;
    keepaliveTimeoutMs: number;
    /** A worker that owes results of executes and has sent none for this long counts as lost. */
    executeTimeoutMs: number;
    reconnectDelayMs: number;
  };
  log: LogSettings;
}

/** Formats of BF16 weights in memory, for weights that need not stay as shipped. */
export const RESIDENTS = ['auto', 'bf16', 'fixed4'] as const;
export type Resident = (typeof RESIDENTS)[number];

/** Address and access rules of main's HTTP API. */
export interface HttpSettings {
  host: string;
  /** 0: any free port. */
  port: number;
  /** true: a user gave this address. false: main takes another port if this one is in use. */
  isAddressGiven: boolean;
  /** Host names, in addition to main's own, that a request may use. */
  hosts: readonly string[];
  /** Origins of web pages that may send requests; "*": any. */
  origins: readonly string[];
  /** File with one API key a line; null: none. */
  apiKeysPath: string | null;
}

/** Emulation of a testbed on other hardware (bench/profiles). */
export interface EmulationSettings {
  /** YAML file of the profile. */
  profilePath: string;
  /** Format of experts in the profiled worker's storage: FP32, or a pack's BF16 with that codec. */
  expertStorage: ExpertStorage;
}

export const EXPERT_STORAGES = ['fp32', 'bf16', 'fixed4', 'huffman', 'mxfp4', 'fp8'] as const;
export type ExpertStorage = (typeof EXPERT_STORAGES)[number];
