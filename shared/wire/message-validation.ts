/** What a received message must hold before a handler sees it. Each throws PROTOCOL_VIOLATION (or REQUEST_INVALID). */
import { OdmoeError } from '../base/errors/odmoe-error.js';
import type { ErrorCode } from '../base/errors/registry.js';
import { isAddress } from './addresses.js';
import { PACK_SOURCES_LIMIT, ROWS_LIMIT, TEXT_LENGTH_LIMIT } from './limits.js';
import type {
  AlignRows,
  CountsReply,
  Execute,
  ExecuteResult,
  NodeIdentity,
  NodeStatus,
  PassLayer,
  PassRow,
  Placement,
  Prediction,
  Prospect,
  Refusal,
  ShadowReply,
  ShadowRequest,
  StreamError,
  TensorType,
  WorkerReply,
  WorkerRequest,
} from './messages.js';
import { requireNumbers } from './wire-numbers.js';

/** Positions are uint32 on the wire. */
const POSITIONS_LIMIT = 2 ** 32;

const VALUE_BYTES: Record<TensorType, number> = {
  TENSOR_TYPE_UNSPECIFIED: 0,
  TENSOR_TYPE_F32: 4,
  TENSOR_TYPE_BF16: 2,
};

/** Characters of a wrong id that an error shows. */
const ID_SHOWN_LIMIT = 100;

/** What names and addresses must not hold: they are shown on terminals and in logs. */
const CONTROL_CHARACTER = /\p{Cc}/u;

/** A message as the decoder left it: any member, a nested message too, may be missing. */
type Unchecked<T> = { [Name in keyof T]?: T[Name] | null };

export function validateCounts(reply: CountsReply): CountsReply {
  for (const count of reply.counts) requireNumbers('Count', count, 'counts');
  return reply;
}

export function validateWorkerRequest(message: WorkerRequest): WorkerRequest {
  switch (message.kind) {
    case 'hello':
      validateIdentity(message.hello);
      return message;
    case 'placement':
      validatePlacement(message.placement);
      return message;
    case 'prediction':
      validatePrediction(message.prediction);
      return message;
    case 'execute':
      validateExecute(message.execute);
      return message;
    case 'release':
      requireNumbers('Release', message.release, 'release');
      validatePassLayer('release', message.release);
      return message;
    case 'end':
      requireNumbers('EndSequence', message.end, 'end');
      return message;
    case 'prospect':
      requireNumbers('Prospect', message.prospect, 'prospect');
      validateProspect(message.prospect);
      return message;
    default:
      throw noKind('WorkerRequest');
  }
}

export function validateWorkerReply(message: WorkerReply): WorkerReply {
  switch (message.kind) {
    case 'welcome':
      validateIdentity(message.welcome.identity);
      return message;
    case 'refusal':
      validateRefusal(message.refusal);
      return message;
    case 'result':
      validateResult(message.result);
      return message;
    case 'error':
      validateStreamError(message.error);
      return message;
    case 'status':
      validateNodeStatus(message.status);
      return message;
    default:
      throw noKind('WorkerReply');
  }
}

export function validateShadowRequest(message: ShadowRequest): ShadowRequest {
  switch (message.kind) {
    case 'hello':
      validateIdentity(message.hello);
      return message;
    case 'placement':
      validatePlacement(message.placement);
      return message;
    case 'begin':
      requireNumbers('BeginSequence', message.begin, 'begin');
      if (message.begin.promptTokens > message.begin.tokenIds.length) {
        throw violation(
          `begin says that ${message.begin.promptTokens} of ${message.begin.tokenIds.length} tokens are the prompt`,
        );
      }
      return message;
    case 'token':
      requireNumbers('AlignToken', message.token, 'token');
      return message;
    case 'cacheRows':
      validateAlignRows(message.cacheRows);
      return message;
    case 'end':
      requireNumbers('EndSequence', message.end, 'end');
      return message;
    default:
      throw noKind('ShadowRequest');
  }
}

export function validateShadowReply(message: ShadowReply): ShadowReply {
  switch (message.kind) {
    case 'welcome':
      validateIdentity(message.welcome.identity);
      return message;
    case 'refusal':
      validateRefusal(message.refusal);
      return message;
    case 'prediction':
      validatePrediction(message.prediction);
      return message;
    case 'draft':
      requireNumbers('DraftToken', message.draft, 'draft');
      return message;
    case 'prefixKept':
      requireNumbers('PrefixKept', message.prefixKept, 'prefix_kept');
      return message;
    case 'error':
      validateStreamError(message.error);
      return message;
    case 'status':
      validateNodeStatus(message.status);
      return message;
    default:
      throw noKind('ShadowReply');
  }
}

/** The decoder leaves out what is optional and absent, and names the fields that are there beside them. */
export function completeNodeStatus(status: NodeStatus & { _deviceDriverUsedBytes?: string }): void {
  delete status._deviceDriverUsedBytes;
  status.deviceDriverUsedBytes ??= null;
}

function validateNodeStatus(status: NodeStatus): void {
  completeNodeStatus(status);
  const { identity, cache, hostMemory, fetchProblem, deviceName, deviceReason } = status;
  validateIdentity(identity);
  const name = `the status of ${identity.id}`;
  requireNumbers('NodeStatus', status, name);
  if (hostMemory !== null) requireNumbers('HostMemoryStatus', hostMemory, name);
  validateShownText('device_name of a status', deviceName);
  validateShownText('device_reason of a status', deviceReason);
  validateShownText('fetch_problem of a status', fetchProblem);
  if (cache === null) return;
  requireNumbers('CacheStatus', cache, name);
  const counts: (object | null)[] = [cache.capacities, cache.kept, cache.hits];
  for (const pools of counts) {
    if (pools === null) throw violation(`${name} tells of a cache without its pools`);
    requireNumbers('PoolCounts', pools, name);
  }
  validateShownText('cache policy of a status', cache.policy);
}

/** Texts of bounded length and a role. A null identity is what a missing nested message decodes to. */
export function validateIdentity(identity: NodeIdentity | null | undefined): NodeIdentity {
  if (identity === null || identity === undefined) throw violation('an identity is missing');
  const texts = ['id', 'cluster', 'modelName', 'packDigest', 'bootId', 'address', 'device', 'release'] as const;
  for (const name of texts) {
    validateShownText(`${name} of an identity`, identity[name]);
  }
  if (identity.id === '') throw violation('an identity has no id');
  const known = ['ROLE_MAIN', 'ROLE_SHADOW', 'ROLE_WORKER'].includes(identity.role);
  if (!known) throw violation(`the identity of ${identity.id} has the unknown role ${identity.role}`);
  return identity;
}

/** Of at most TEXT_LENGTH_LIMIT characters, and nothing in it that a terminal would act on. */
function validateShownText(name: string, text: string): void {
  requireShortText(name, text);
  if (CONTROL_CHARACTER.test(text)) throw violation(`${name} holds control characters`);
}

function requireShortText(name: string, text: string): void {
  if (text.length > TEXT_LENGTH_LIMIT) throw violation(`${name} is too long`);
}

export function validateRefusal(refusal: Refusal): void {
  requireShortText('the message of a refusal', refusal.message);
  requireShortText('the code of a refusal', refusal.code);
}

function validateStreamError(error: StreamError): void {
  requireNumbers('StreamError', error, 'error');
  requireShortText('the message of an error', error.message);
  requireShortText('the code of an error', error.code);
}

function validatePrediction(prediction: Prediction): void {
  requireNumbers('Prediction', prediction, 'prediction');
  const { experts, workers, rows, restart } = prediction;
  if (restart) {
    validatePass('a restart', prediction.pass);
    if (experts.length + workers.length + rows.length === 0) return;
    throw violation(
      `a prediction names ${experts.length} experts, ${workers.length} workers and ${rows.length} runs of rows where it starts again: ` +
        'none are expected',
    );
  }
  validatePassLayer('prediction', prediction);
  if (workers.length === 0 || workers.length === experts.length) return;
  throw violation(`a prediction deals ${experts.length} experts to ${workers.length} workers`);
}

/** A pass, and at least one row of it. Returns the number of rows. */
function validatePassLayer(name: string, { pass, rows }: Unchecked<PassLayer>): number {
  validatePass(name, pass);
  let count = 0;
  for (const run of rows ?? []) {
    requireNumbers('RowRun', run, `a run of rows of ${name}`);
    if (run.rows < 1 || run.position + run.rows > POSITIONS_LIMIT) {
      throw violation(`${name} has a run of ${run.rows} rows at position ${run.position}`);
    }
    count += run.rows;
  }
  if (count < 1 || count > ROWS_LIMIT) throw violation(`${name} has ${count} rows: 1 to ${ROWS_LIMIT} are allowed`);
  return count;
}

/** A null pass is what a missing nested message decodes to. */
function validatePass(name: string, pass: PassRow | null | undefined): void {
  if (pass === null || pass === undefined) throw violation(`${name} names no pass`);
  requireNumbers('PassRow', pass, `the pass of ${name}`);
}

function validateExecute(execute: Execute): void {
  requireNumbers('Execute', execute, 'execute');
  const rows = validatePassLayer('execute', execute);
  validateTensor('execute', rows, execute, execute.hidden);
  if (execute.experts.length === 0) throw violation('an execute names no expert');
  requireDistinctExperts('execute', execute.experts);
  for (const { expert, rows: indexes } of execute.experts) {
    let previous = -1;
    for (const index of indexes) {
      if (index <= previous || index >= rows) {
        throw violation(`expert ${expert} of an execute is to run on row ${index} after row ${previous} of ${rows}`);
      }
      previous = index;
    }
  }
}

function validateResult(result: ExecuteResult): void {
  requireNumbers('ExecuteResult', result, 'result');
  requireDistinctExperts('result', result.experts);
  for (const { rows, output, failure } of result.experts) {
    if (failure === null) validateTensor('result', rows, result, output);
    else {
      requireShortText('the message of a failure', failure.message);
      requireShortText('the code of a failure', failure.code);
    }
  }
}

function requireDistinctExperts(name: string, experts: readonly { expert: number }[]): void {
  const distinct = new Set(experts.map(({ expert }) => expert));
  if (distinct.size !== experts.length) throw violation(`${name} names an expert twice`);
}

function validateTensor(
  name: string,
  rows: number,
  { hiddenSize: columns, dtype }: { hiddenSize: number; dtype: TensorType },
  bytes: Uint8Array,
): void {
  if (rows < 1 || rows > ROWS_LIMIT) throw violation(`${name} has ${rows} rows: 1 to ${ROWS_LIMIT} are allowed`);
  if (columns < 1) throw violation(`${name} has rows of ${columns} values`);
  const valueBytes = VALUE_BYTES[dtype];
  if (!(valueBytes > 0)) throw violation(`${name} has a tensor of unknown type ${dtype}`);
  const expected = rows * columns * valueBytes;
  if (bytes.length !== expected) {
    throw violation(
      `${name} has ${bytes.length} bytes of tensor where ${rows} x ${columns} of ${dtype} take ${expected}`,
    );
  }
}

function validateAlignRows(message: AlignRows): void {
  requireNumbers('AlignRows', message, 'cache_rows');
  const { rows, values } = message;
  if (rows < 1 || rows > ROWS_LIMIT) throw violation(`cache_rows has ${rows} rows: 1 to ${ROWS_LIMIT} are allowed`);
  if (values.length === 0 || values.length % (rows * VALUE_BYTES.TENSOR_TYPE_F32) !== 0) {
    throw violation(`cache_rows has ${values.length} bytes for ${rows} rows of F32`);
  }
}

function validatePlacement(placement: Placement): void {
  requireNumbers('Placement', placement, 'placement');
  for (const worker of placement.workers) requireNumbers('PlacedWorker', worker, 'a worker of a placement');
  const ids = new Set(placement.workers.map((worker) => worker.id));
  if (ids.size !== placement.workers.length) throw violation('a placement names one worker twice');
  for (const group of placement.groups) {
    const stranger = group.workerIds.find((id) => !ids.has(id));
    if (stranger === undefined) continue;
    throw violation(`a group of a placement names ${stranger.slice(0, ID_SHOWN_LIMIT)}, who is not among its workers`);
  }
}

function validateProspect({ placement, sources }: Unchecked<Prospect>): void {
  if (placement === null || placement === undefined) throw violation('a prospect has no placement');
  validatePlacement(placement);
  if (sources === null || sources === undefined || sources.length > PACK_SOURCES_LIMIT) {
    throw violation(`a prospect names more than ${PACK_SOURCES_LIMIT} sources`);
  }
  for (const source of sources) if (!isAddress(source)) throw violation('a source of a prospect is not HOST:PORT');
}

function noKind(message: string): OdmoeError {
  return violation(`a ${message} came with nothing in it that this version knows`);
}

function violation(message: string, code: ErrorCode = 'PROTOCOL_VIOLATION'): OdmoeError {
  return new OdmoeError(code, message);
}
