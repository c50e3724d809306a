/** The contents of cluster.yaml: the schema, its defaults, and the types that follow from it. */
import { CACHE_POLICIES } from './cache-policies.js';
import { z } from 'zod';
import {
  MAX_ACTIVE_SEQUENCES,
  MAX_DRAFT_ROWS,
  PASS_ROWS_LIMIT,
  THREADS_LIMIT,
  REPLAN_PASSES,
} from './setting-limits.js';
import { parseByteSize, parseContextMemory } from '../base/text/byte-size.js';
import { DEVICE_NAME_ERROR, isDeviceName, type DeviceName } from './device-name.js';
import { HTTP_ADDRESS_ERROR, parseHttpAddress } from './http-address.js';
import { EXPERT_STORAGES, RESIDENTS } from './node-settings.js';

export const DEFAULT_CLUSTER = 'odmoe';
/** Budget of a worker if no setting gives one. Under emulation the profile gives it. */
export const WORKER_BUDGET_DEFAULT_BYTES = 1024 ** 3;

export const MILLISECONDS_LIMIT = 3_600_000;
const REPLAN_PASSES_LIMIT = 1_000_000;

function wholeNumber(least: number, most: number) {
  const error = `a whole number from ${least} to ${most}`;
  return z.number({ error }).int({ error }).min(least, { error }).max(most, { error });
}

function text(what: string) {
  const error = `${what} (a text, not empty)`;
  return z.string({ error }).trim().min(1, { error }).max(1024, { error });
}

function choice<const T extends readonly [string, ...string[]]>(values: T) {
  return z.enum(values, { error: `one of ${values.join(', ')}` });
}

const SIZE_ERROR = 'a size such as "1 GiB", "512 MiB" or a number of bytes; 0: no limit';
const byteSize = z.union([z.string(), z.number()], { error: SIZE_ERROR }).transform((value, context) => {
  const bytes = parseByteSize(value);
  if (bytes !== null) return bytes;
  context.addIssue({ code: 'custom', message: SIZE_ERROR, input: value });
  return z.NEVER;
});

const CONTEXT_MEMORY_ERROR = 'auto, or a size such as "4 GiB"';
const contextMemory = z.union([z.string(), z.number()], { error: CONTEXT_MEMORY_ERROR }).transform((value, context) => {
  const bytes = parseContextMemory(value);
  if (bytes !== null) return bytes;
  context.addIssue({ code: 'custom', message: CONTEXT_MEMORY_ERROR, input: value });
  return z.NEVER;
});

const HOST_MEMORY_ERROR = 'auto, or a size such as "8 GiB"';
const hostMemory = z.union([z.literal('auto', { error: HOST_MEMORY_ERROR }), byteSize], { error: HOST_MEMORY_ERROR });

const ID_ERROR = 'letters, digits, ".", "_" and "-", at most 63 of them';
export const ID_PATTERN = /^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$/;
const identifier = z.string({ error: ID_ERROR }).regex(ID_PATTERN, { error: ID_ERROR });

const HOST_ERROR = 'a host name or an IP address without a port';
export const HOST_PATTERN = /^([A-Za-z0-9][A-Za-z0-9._-]*|[0-9a-fA-F:]+(%\w+)?)$/;
const host = z.string({ error: HOST_ERROR }).regex(HOST_PATTERN, { error: HOST_ERROR });

const httpAddress = z.string({ error: HTTP_ADDRESS_ERROR }).transform((value, context) => {
  const address = parseHttpAddress(value);
  if (address !== null) return address;
  context.addIssue({ code: 'custom', message: HTTP_ADDRESS_ERROR, input: value });
  return z.NEVER;
});
const ORIGIN_ERROR = 'an origin, as in https://chat.example.org or http://localhost:3000, or "*" for any';
const ORIGIN_PATTERN = /^(\*|[a-z][a-z0-9+.-]*:\/\/[^/\s*]+)$/;
const origin = z.string({ error: ORIGIN_ERROR }).regex(ORIGIN_PATTERN, { error: ORIGIN_ERROR });

const IPV4_ERROR = 'the IPv4 address of a network interface of this machine, as in 192.168.1.20';
const interfaceAddress = z.ipv4({ error: IPV4_ERROR });

export const INSTRUCTION_SETS = ['auto', 'avx512', 'avx2', 'neon', 'scalar'] as const;
export const ARITHMETICS = ['exact', 'fast'] as const;
export const PRECISIONS = ['int8', 'fp16', 'nf4'] as const;
export const QUANTIZED = ['projections', 'all'] as const;
export const LOG_LEVELS = ['error', 'warn', 'info', 'debug'] as const;
export const LOG_FORMATS = ['text', 'json'] as const;
export const PROVIDERS = ['mdns', 'static'] as const;
export const PREDICTION_SOURCES = ['sep', 'router-ahead', 'random', 'off'] as const;
export const SPREADS = ['group', 'all'] as const;
/** The place where main's experts run: workers of the LAN, main's own process, or both. */
export const EXPERTS = ['workers', 'local', 'both'] as const;
export const HOMES = ['group', 'strict'] as const;
/** Most workers that store the same expert. */
export const REPLICAS_LIMIT = 2;
/** Most expert layers that router-ahead looks ahead. A router further ahead predicts nothing useful. */
export const LAYERS_AHEAD_LIMIT = 8;
const LAYERS_AHEAD_ERROR = `a whole number from 1 to ${LAYERS_AHEAD_LIMIT}`;
const layersAhead = z
  .number({ error: LAYERS_AHEAD_ERROR })
  .int({ error: LAYERS_AHEAD_ERROR })
  .min(1, { error: LAYERS_AHEAD_ERROR })
  .max(LAYERS_AHEAD_LIMIT, { error: LAYERS_AHEAD_ERROR });
/** Most positions of one decode pass. */
export const DRAFT_ROWS_LIMIT = MAX_DRAFT_ROWS;

const GROUP_SIZE_ERROR = 'auto or a whole number from 1 to 1024';
const groupSize = z.union(
  [
    z.literal('auto', { error: GROUP_SIZE_ERROR }),
    z
      .number({ error: GROUP_SIZE_ERROR })
      .int({ error: GROUP_SIZE_ERROR })
      .min(1, { error: GROUP_SIZE_ERROR })
      .max(1024, { error: GROUP_SIZE_ERROR }),
  ],
  { error: GROUP_SIZE_ERROR },
);

const DRAFT_ROWS_ERROR = `auto or a whole number from 1 to ${DRAFT_ROWS_LIMIT}`;
const draftRows = z.union(
  [
    z.literal('auto', { error: DRAFT_ROWS_ERROR }),
    z
      .number({ error: DRAFT_ROWS_ERROR })
      .int({ error: DRAFT_ROWS_ERROR })
      .min(1, { error: DRAFT_ROWS_ERROR })
      .max(DRAFT_ROWS_LIMIT, { error: DRAFT_ROWS_ERROR }),
  ],
  { error: DRAFT_ROWS_ERROR },
);

const deviceName = z
  .string({ error: DEVICE_NAME_ERROR })
  .refine((value): value is DeviceName => isDeviceName(value), { error: DEVICE_NAME_ERROR });
const arithmetic = choice(ARITHMETICS);
/** Settings of each role. They apply to its nodes that do not set them. */
const roleDevice = { device: deviceName.default('auto'), arithmetic: arithmetic.default('exact') };

const alignPeriod = wholeNumber(0, 1_000_000);
const port = wholeNumber(1, 65_535);
const threads = wholeNumber(0, THREADS_LIMIT);
/** Most reads that the addon has in flight at a time. */
const READ_DEPTH_LIMIT = 16;
const READ_DEPTH_ERROR = `expected auto or a whole number from 1 to ${READ_DEPTH_LIMIT}`;
const SLOTS_ERROR = 'auto or a whole number from 1 to 1024';
const readDepth = z.union([z.literal('auto', { error: READ_DEPTH_ERROR }), wholeNumber(1, READ_DEPTH_LIMIT)], {
  error: READ_DEPTH_ERROR,
});
const slots = z.union([z.literal('auto', { error: SLOTS_ERROR }), wholeNumber(1, 1024)], { error: SLOTS_ERROR });
const SWITCH_ERROR = 'true or false';
const poolSize = wholeNumber(0, 65_536);
const MAX_ACTIVE_ERROR = `auto or a whole number from 1 to ${MAX_ACTIVE_SEQUENCES}`;
const maxActiveSequences = z.union(
  [z.literal('auto', { error: MAX_ACTIVE_ERROR }), wholeNumber(1, MAX_ACTIVE_SEQUENCES)],
  { error: MAX_ACTIVE_ERROR },
);
const MAX_DELAY_ERROR = `auto or a whole number from 0 to ${MILLISECONDS_LIMIT}`;
const maxDelay = z.union([z.literal('auto', { error: MAX_DELAY_ERROR }), wholeNumber(0, MILLISECONDS_LIMIT)], {
  error: MAX_DELAY_ERROR,
});

const nodeSchema = z.strictObject({
  id: identifier,
  role: choice(['main', 'shadow', 'worker']),
  host: host.optional(),
  port: port.optional(),
  listen: host.optional(),
  model: text('the directory of a pack').optional(),
  threads: threads.optional(),
  memory_budget: byteSize.optional(),
  device: deviceName.optional(),
  arithmetic: arithmetic.optional(),
  slots: slots.optional(),
  cache: byteSize.optional(),
  host_memory: hostMemory.optional(),
  instruction_set: choice(INSTRUCTION_SETS).optional(),
});

export const clusterConfigSchema = z.strictObject({
  cluster: identifier.default(DEFAULT_CLUSTER),
  model: text('the directory of a pack').optional(),
  discovery: z
    .strictObject({ provider: choice(PROVIDERS).default('mdns'), interface: interfaceAddress.optional() })
    .prefault({}),
  nodes: z.array(nodeSchema, { error: 'a list of nodes' }).max(1024).default([]),
  emulation: z
    .strictObject({ profile: text('a device profile'), expert_storage: choice(EXPERT_STORAGES).default('fp32') })
    .optional(),
  prediction: z
    .strictObject({ source: choice(PREDICTION_SOURCES).default('sep'), layers_ahead: layersAhead.default(1) })
    .prefault({}),
  align: z
    .strictObject({
      token: alignPeriod.default(1),
      kv: alignPeriod.default(1),
      stream_kv: z.boolean({ error: SWITCH_ERROR }).default(true),
    })
    .prefault({}),
  drafting: z
    .strictObject({ optimistic: z.boolean({ error: SWITCH_ERROR }).default(false), rows: draftRows.default(1) })
    .prefault({}),
  placement: z
    .strictObject({
      group_size: groupSize.default('auto'),
      spread: choice(SPREADS).default('group'),
      homes: choice(HOMES).default('group'),
      replicas: wholeNumber(1, REPLICAS_LIMIT).default(1),
    })
    .prefault({}),
  shadow: z
    .strictObject({
      precision: choice(PRECISIONS).default('int8'),
      quantize: choice(QUANTIZED).default('projections'),
      ...roleDevice,
    })
    .prefault({}),
  main: z
    .strictObject({
      ...roleDevice,
      experts: choice(EXPERTS).default('workers'),
      resident: choice(RESIDENTS).optional(),
      max_active_sequences: maxActiveSequences.default('auto'),
      max_queued_requests: wholeNumber(0, 1_000_000).default(64),
      max_context_positions: wholeNumber(0, 2 ** 31 - 1).default(0),
      context_memory: contextMemory.default('auto'),
      reuse_prefixes: z.boolean({ error: SWITCH_ERROR }).default(true),
      prefill_rows: wholeNumber(1, PASS_ROWS_LIMIT).default(256),
      mini_batch_rows: wholeNumber(1, PASS_ROWS_LIMIT).default(32),
      prefill_overlap: z.boolean({ error: SWITCH_ERROR }).default(true),
      worker_grace_ms: wholeNumber(0, MILLISECONDS_LIMIT).default(2000),
      stop_grace_ms: wholeNumber(0, MILLISECONDS_LIMIT).default(30_000),
      http: httpAddress.optional(),
      http_hosts: z.array(host, { error: 'a list of host names' }).max(1024).default([]),
      http_origins: z.array(origin, { error: 'a list of origins' }).max(1024).default([]),
      api_keys: text('a file of API keys, one a line').optional(),
    })
    .prefault({}),
  batching: z
    .strictObject({
      enabled: z.boolean({ error: SWITCH_ERROR }).default(true),
      max_rows: wholeNumber(1, PASS_ROWS_LIMIT).default(256),
      max_delay_ms: maxDelay.default('auto'),
    })
    .prefault({}),
  worker: z
    .strictObject({
      slots: slots.default('auto'),
      memory_budget: byteSize.optional(),
      ...roleDevice,
      cache: byteSize.optional(),
      cache_policy: choice(CACHE_POLICIES).optional(),
      resident: choice(RESIDENTS).optional(),
      replan_passes: wholeNumber(1, REPLAN_PASSES_LIMIT).default(REPLAN_PASSES),
      host_memory: hostMemory.default(0),
      pools: z
        .strictObject({
          full: poolSize.default(0),
          compressed: poolSize.default(0),
          sign_mantissa: poolSize.default(0),
          exponent: poolSize.default(0),
        })
        .optional(),
      decompression_threads: threads.default(0),
      direct_io: z.boolean({ error: SWITCH_ERROR }).default(false),
      read_depth: readDepth.default('auto'),
    })
    .prefault({}),
  network: z
    .strictObject({
      keepalive_interval_ms: wholeNumber(50, MILLISECONDS_LIMIT).default(500),
      keepalive_timeout_ms: wholeNumber(50, MILLISECONDS_LIMIT).default(700),
      execute_timeout_ms: wholeNumber(1, MILLISECONDS_LIMIT).default(30_000),
      reconnect_delay_ms: wholeNumber(1, MILLISECONDS_LIMIT).default(500),
    })
    .prefault({}),
  log: z
    .strictObject({ level: choice(LOG_LEVELS).default('warn'), format: choice(LOG_FORMATS).default('text') })
    .prefault({}),
});

/** cluster.yaml, parsed and checked. Relative model paths start at `directory`. */
export type ClusterConfig = Omit<z.infer<typeof clusterConfigSchema>, 'nodes'> & {
  readonly path: string | null;
  readonly nodes: readonly ConfiguredNode[];
};

export type NodeEntry = z.infer<typeof nodeSchema>;

/** A node of the list, with its address filled in. */
export type ConfiguredNode = NodeEntry & {
  readonly address: { host: string; port: number };
  readonly hostGiven: boolean;
};

const DEFAULT_PORTS = { main: 7600, shadow: 7601, worker: 7602 } as const;

export function defaultPort(role: NodeEntry['role']): number {
  return DEFAULT_PORTS[role];
}

/** Gives each node its address. The port is the default of its role; a further worker on a host gets the next free port. */
export function addressNodes(entries: readonly NodeEntry[]): ConfiguredNode[] {
  const taken = new Set(entries.map((entry) => `${entry.host ?? 'localhost'}:${entry.port ?? ''}`));
  return entries.map((entry) => {
    const nodeHost = entry.host ?? 'localhost';
    let nodePort = entry.port ?? defaultPort(entry.role);
    while (entry.port === undefined && taken.has(`${nodeHost}:${nodePort}`)) nodePort += 1;
    taken.add(`${nodeHost}:${nodePort}`);
    return { ...entry, address: { host: nodeHost, port: nodePort }, hostGiven: entry.host !== undefined };
  });
}
