import type { LogSettings } from '../base/log/logger.js';
import type { CachePolicy, PoolCapacities } from './cache-policies.js';

/** What one daemon runs with: cluster.yaml and the flags, resolved and checked. Nothing past this point is optional. */
export type RoleSetting = 'main' | 'shadow' | 'worker';

export interface KnownPeer {
  role: RoleSetting;
  /** Empty when the configuration gives none. */
  id: string;
  /** "host:port". */
  address: string;
}

export interface NodeSettings {
  role: RoleSetting;
  id: string;
  cluster: string;
  /** Where records go that outlast the daemon. */
  stateDirectory: string;
  /** Directory of the pack; null: a worker's own, into which it fetches main's. */
  modelPath: string | null;
  /** Address to listen on, and port (0: any free one). */
  listenHost: string;
  listenPort: number;
  /** What peers are told to dial; null: worked out from listenHost or the interface. */
  advertiseHost: string | null;
  discovery: {
    provider: 'mdns' | 'static';
    /** IPv4 address of the interface multicast goes through; null: the system's choice. */
    interfaceAddress: string | null;
    /** The other daemons of cluster.yaml; empty under mdns unless listed. */
    peers: KnownPeer[];
  };
  /** Address of main to announce oneself to (workers and shadow); null: wait to be found. */
  mainAddress: string | null;
  device: {
    /** auto: a GPU where one can be used and the budget holds its context, else the processor. Under emulation the processor. */
    backend: 'auto' | 'cpu' | 'cuda';
    /** Which CUDA device, as the driver counts them; null: the first that can be used. */
    device: number | null;
    /** Of a GPU: fast may use tensor cores, and answers are then not those of other nodes to the bit. */
    arithmetic: 'exact' | 'fast';
    /** Of the processor. */
    instructionSet: 'auto' | 'avx512' | 'avx2' | 'neon' | 'scalar';
    /** Of the processor; 0: as many as the process may use. */
    threads: number;
    /** 0: no limit; of a GPU with the driver's context; under emulation, what the profile gives the device. */
    memoryBudgetBytes: number;
  };
  main: {
    /** Who runs experts: workers (of the LAN), a worker of main's own process alone (local), or both. */
    experts: 'workers' | 'local' | 'both';
    /** Answers in progress at a time; auto: as many as memory admits. */
    maxActiveSequences: number | 'auto';
    maxQueuedRequests: number;
    /** Positions of prompt and answer together; 0: the model's own limit. */
    maxContextPositions: number;
    /** Memory for the rows of all sequences and of kept prefixes; auto: what the device's budget leaves, or half of what the host has free. */
    contextMemoryBytes: number | 'auto';
    /** Rows of earlier requests are used again where a prompt begins as they do. */
    reusePrefixes: boolean;
    /** Rows of one prefill pass. */
    prefillRows: number;
    /** Rows of one prefill message to a worker. */
    miniBatchRows: number;
    /**
     * How its own BF16 matrices are kept: as shipped (null, or 'bf16' for a model shipped so), or as 'fixed4', which computes the same
     * bits from fewer bytes; 'auto' measures which of the two is faster.
     */
    resident: Resident | null;
    /** A layer's experts load while the layer before runs; false: once the router has chosen, and rows follow when all are there. */
    prefillOverlap: boolean;
    /** How long a request waits for a worker when none is left. */
    workerGraceMs: number;
    /** How long answers under way may go on when main is stopped. */
    stopGraceMs: number;
    /** The door for HTTP clients; null: off. */
    http: HttpSettings | null;
  };
  batching: {
    /** One pass runs rows of all sequences; false: one sequence a pass. */
    enabled: boolean;
    /** Of one pass. */
    maxRows: number;
    /**
     * How long rows of a prompt may delay others' tokens; auto: a pass takes at most 1.25 times what it takes without them where that is
     * 200 ms or more, at most 4 times where it is 50 ms or less.
     */
    maxDelayMs: number | 'auto';
  };
  /** The processor's arithmetic in the time and memory of profiled devices and network; null: this machine is what it is. */
  emulation: EmulationSettings | null;
  prediction: {
    /**
     * Where predictions of experts come from: shadow (sep), main's own routers of layers further on, chance, or nowhere (experts are
     * loaded once the router has chosen).
     */
    source: 'sep' | 'router-ahead' | 'random' | 'off';
    /** Of router-ahead: how many expert layers further on the router is that is asked. */
    layersAhead: number;
  };
  align: {
    /** 0: never. */
    tokenPeriod: number;
    keyValuePeriod: number;
    /** Key and value rows leave layer by layer while the iteration runs; false: at its end. */
    streamKeyValues: boolean;
  };
  drafting: {
    /** Shadow goes on from its own guess before main's token is there. */
    optimistic: boolean;
    /** Positions of one pass: main's token and drafts behind it. 1: no drafts; auto: as many as pay, by what is measured. */
    rows: number | 'auto';
  };
  placement: {
    groupSize: number | 'auto';
    /** Experts go to the layer's group (group), or to whichever worker is free for them (all). */
    spread: 'group' | 'all';
    /** Experts belong to the group of their layer (group), or each to workers of its own (strict). */
    homes: 'group' | 'strict';
    /** Of strict homes: workers that have the same expert. */
    replicas: number;
  };
  shadow: {
    precision: 'int8' | 'fp16' | 'nf4';
    /** What is quantized: projections and experts, or embedding, routers and LM head, too. */
    quantize: 'projections' | 'all';
  };
  worker: {
    /** Working slots: experts that may be loaded or executed at a time. auto: by the experts of a token and their size. */
    slots: number | 'auto';
    /** Device memory for experts and parts of them that are kept; 0: none, the worker is cacheless. */
    cacheBytes: number;
    cachePolicy: CachePolicy;
    /** How whole BF16 experts of the cache are kept, as main.resident; fixed4 is made of what was loaded while the worker is idle. */
    resident: Resident | null;
    /** Main's own, on a device with a budget: what it keeps gives way to the rows of sequences. */
    yields: boolean;
    /** Of policy residency: passes between two plannings. */
    replanPasses: number;
    /** Host memory for stored bytes of experts, which loads then do not read; auto: what the host can spare; 0: none. */
    hostMemory: number | 'auto';
    /** Experts that each pool keeps, in place of a plan for cacheBytes; null: plan. */
    pools: PoolCapacities | null;
    /** 0: by the machine. */
    decompressionThreads: number;
    /** Read past the page cache where the file system can. */
    directIo: boolean;
    /** Reads of storage in flight at a time; auto: as many as it gets faster by, measured at the start. */
    readDepth: number | 'auto';
  };
  network: {
    keepaliveIntervalMs: number;
    keepaliveTimeoutMs: number;
    /** A worker that owes answers to executes and has given none for so long counts as lost. */
    executeTimeoutMs: number;
    reconnectDelayMs: number;
  };
  log: LogSettings;
}

/** In which form BF16 weights are kept that need not stay as they are shipped. */
export const RESIDENTS = ['auto', 'bf16', 'fixed4'] as const;
export type Resident = (typeof RESIDENTS)[number];

/** Where main's door listens, and whom it lets in. */
export interface HttpSettings {
  host: string;
  /** 0: any free one. */
  port: number;
  /** Somebody asked for this address; else main takes another port where this one is taken. */
  isAddressGiven: boolean;
  /** Host names, beside main's own, that a request may name. */
  hosts: readonly string[];
  /** Origins of web pages that may ask; "*": any. */
  origins: readonly string[];
  /** File with one API key a line; null: none. */
  apiKeysPath: string | null;
}

/** A testbed that is rehearsed on other hardware (bench/profiles). */
export interface EmulationSettings {
  /** YAML file of the profile. */
  profilePath: string;
  /** In which form the profiled worker keeps experts in its storage: as FP32, or as a pack's BF16 with that codec. */
  expertStorage: ExpertStorage;
}

export const EXPERT_STORAGES = ['fp32', 'bf16', 'fixed4', 'huffman', 'mxfp4', 'fp8'] as const;
export type ExpertStorage = (typeof EXPERT_STORAGES)[number];
