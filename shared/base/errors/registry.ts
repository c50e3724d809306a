/**
 * The one registry of errors: each code with the exit status, gRPC status and HTTP status it maps to.
 * `docs/errors.md` documents the same codes; a test keeps the two in step.
 */

/** The exit statuses of errors, and whether the same program may fare better when it is started again and nobody has changed anything. */
export const EXIT_STATUSES = {
  1: { meaning: 'anything else', mayMend: true },
  2: { meaning: 'bad usage or bad configuration', mayMend: false },
  3: { meaning: 'the cluster, the machine or a model file is unusable', mayMend: true },
  4: { meaning: 'the machine was removed from its cluster', mayMend: false },
} as const;

export type ExitStatus = keyof typeof EXIT_STATUSES;

/** What a code maps to. */
export interface ErrorKind {
  readonly exitStatus: ExitStatus;
  /** Name of a grpc-js `status` member. */
  readonly grpcStatus:
    | 'INVALID_ARGUMENT'
    | 'FAILED_PRECONDITION'
    | 'RESOURCE_EXHAUSTED'
    | 'UNAUTHENTICATED'
    | 'PERMISSION_DENIED'
    | 'UNAVAILABLE'
    | 'DEADLINE_EXCEEDED'
    | 'DATA_LOSS'
    | 'ABORTED'
    | 'CANCELLED'
    | 'UNIMPLEMENTED'
    | 'INTERNAL';
  readonly httpStatus: number;
  /** The meaning in one line, for the documentation. */
  readonly meaning: string;
}

const kind = (
  exitStatus: ExitStatus,
  grpcStatus: ErrorKind['grpcStatus'],
  httpStatus: number,
  meaning: string,
): ErrorKind => ({ exitStatus, grpcStatus, httpStatus, meaning });

export const ERROR_KINDS = {
  USAGE: kind(2, 'INVALID_ARGUMENT', 400, 'a command-line flag or argument is wrong'),
  CONFIG_INVALID: kind(2, 'INVALID_ARGUMENT', 400, 'cluster.yaml or a flag that overrides it does not hold together'),
  REQUEST_INVALID: kind(2, 'INVALID_ARGUMENT', 400, 'a generation request has a value out of range'),
  PROMPT_TOO_LONG: kind(2, 'INVALID_ARGUMENT', 400, 'the prompt leaves no room for an answer in the context'),
  UNAUTHORIZED: kind(
    2,
    'FAILED_PRECONDITION',
    401,
    'no API key came with an HTTP request that needs one, or a wrong one',
  ),
  HOST_REFUSED: kind(
    2,
    'FAILED_PRECONDITION',
    403,
    'an HTTP request names a host or an origin that main does not serve',
  ),
  ROUTE_UNKNOWN: kind(2, 'UNIMPLEMENTED', 404, 'nothing is served at the path of an HTTP request'),
  MODEL_UNKNOWN: kind(2, 'FAILED_PRECONDITION', 404, 'an HTTP request names a model that main does not serve'),
  METHOD_UNKNOWN: kind(2, 'UNIMPLEMENTED', 405, 'the path of an HTTP request is served with another method'),
  REQUEST_SLOW: kind(1, 'DEADLINE_EXCEEDED', 408, 'a request did not come whole in time'),
  REQUEST_TOO_LARGE: kind(2, 'RESOURCE_EXHAUSTED', 413, 'a request is larger than main takes'),
  PORT_UNAVAILABLE: kind(3, 'UNAVAILABLE', 503, 'the address to listen on is taken or not of this machine'),
  INSTALLATION_INCOMPLETE: kind(3, 'FAILED_PRECONDITION', 503, 'odmoe is not built whole, or its Node is too old'),
  MODEL_NOT_FOUND: kind(3, 'FAILED_PRECONDITION', 503, 'no model, or an incomplete one, stands at the path given'),
  MODEL_UNSUPPORTED: kind(3, 'UNIMPLEMENTED', 501, 'the architecture, dtype or an option of it is not supported'),
  MODEL_CORRUPT: kind(3, 'DATA_LOSS', 500, 'a model file is truncated, corrupt or contradicts itself'),
  HUB_REFUSED: kind(2, 'PERMISSION_DENIED', 403, 'the hub does not give a model to whoever asks for it'),
  HUB_UNAVAILABLE: kind(3, 'UNAVAILABLE', 503, 'the hub cannot be reached, must not be asked, or answers no more now'),
  PACK_INCOMPLETE: kind(
    3,
    'FAILED_PRECONDITION',
    503,
    'packing or fetching is not finished: what was asked for is not there',
  ),
  PACK_CORRUPT: kind(3, 'DATA_LOSS', 500, 'a chunk or file of a pack fails its checksum or its manifest is wrong'),
  TOKENIZER_INVALID: kind(3, 'FAILED_PRECONDITION', 503, 'tokenizer.json or the chat template cannot be used'),
  STORAGE_FULL: kind(3, 'RESOURCE_EXHAUSTED', 507, 'the disk is full'),
  STORAGE_FAILED: kind(3, 'UNAVAILABLE', 503, 'reading or writing a file failed'),
  PROCESS_LIMIT: kind(
    3,
    'RESOURCE_EXHAUSTED',
    503,
    'a limit of the system is reached: open files, threads, or memory of the process',
  ),
  DEVICE_UNAVAILABLE: kind(3, 'FAILED_PRECONDITION', 503, 'the native library or the device asked for cannot be used'),
  DEVICE_OUT_OF_MEMORY: kind(3, 'RESOURCE_EXHAUSTED', 507, 'the device memory budget does not hold what was asked'),
  DEVICE_LOST: kind(3, 'UNAVAILABLE', 503, 'the device has failed or its driver has given it up; the daemon ends'),
  DEVICE_DRIVER_TOO_OLD: kind(3, 'FAILED_PRECONDITION', 503, 'the GPU driver is older than this build of odmoe needs'),
  DEVICE_ARCHITECTURE_UNSUPPORTED: kind(3, 'FAILED_PRECONDITION', 503, 'this build of odmoe has no code for the GPU'),
  TRUST_REFUSED: kind(3, 'UNAUTHENTICATED', 403, 'a peer is not in the cluster, or was removed from it'),
  NODE_REMOVED: kind(4, 'UNAUTHENTICATED', 403, 'this daemon was removed from its cluster, and ends'),
  NOT_ALLOWED: kind(2, 'PERMISSION_DENIED', 403, 'the role of the caller may not ask for this'),
  JOIN_TOKEN_INVALID: kind(2, 'UNAUTHENTICATED', 403, 'a token or a code for joining a cluster is not good'),
  PAIRING_UNKNOWN: kind(2, 'UNAUTHENTICATED', 403, 'main knows nothing of the code that a joining machine shows'),
  TLS_MISMATCH: kind(3, 'FAILED_PRECONDITION', 503, 'one side of a connection speaks TLS and the other does not'),
  NODE_REFUSED: kind(3, 'FAILED_PRECONDITION', 503, 'a peer has another cluster, protocol, model or pack'),
  DAEMON_NOT_SERVING: kind(3, 'UNAVAILABLE', 503, 'a daemon of this host does not run, or does not serve yet'),
  NO_MAIN: kind(3, 'UNAVAILABLE', 503, 'no main node was found or it does not answer'),
  NO_WORKERS: kind(3, 'UNAVAILABLE', 503, 'no worker is connected to main'),
  WORKER_LOST: kind(3, 'UNAVAILABLE', 503, 'the connection to a worker broke while it had work'),
  WORKER_DISTRUSTED: kind(3, 'DATA_LOSS', 500, 'a worker gave values that others prove wrong, and is asked no more'),
  WORKERS_DISAGREE: kind(3, 'DATA_LOSS', 500, 'workers gave different values, and nobody could say which are right'),
  ARITHMETIC_DIFFERS: kind(3, 'FAILED_PRECONDITION', 503, "a worker's release computes other bits than main's"),
  OUTPUT_NOT_FINITE: kind(
    3,
    'DATA_LOSS',
    500,
    'an expert gave no finite numbers, and it is not known which part is at fault',
  ),
  SHADOW_LOST: kind(3, 'UNAVAILABLE', 503, 'the connection to the shadow broke'),
  STALE_EPOCH: kind(1, 'ABORTED', 409, 'a message belongs to an older placement epoch'),
  PROTOCOL_VIOLATION: kind(1, 'INVALID_ARGUMENT', 400, 'a peer sent a message that the protocol does not allow'),
  QUEUE_FULL: kind(3, 'RESOURCE_EXHAUSTED', 429, 'too many requests are queued already'),
  TIMEOUT: kind(3, 'DEADLINE_EXCEEDED', 504, 'something did not happen within its bound'),
  CANCELLED: kind(1, 'CANCELLED', 499, 'the caller went away or interrupted'),
  INTERNAL: kind(1, 'INTERNAL', 500, 'a defect in odmoe'),
} as const satisfies Record<string, ErrorKind>;

export type ErrorCode = keyof typeof ERROR_KINDS;
