/**
 * Rules for single kinds of received messages. message-check.ts applies them, in addition to its general checks, before a handler sees the
 * message. Each rule throws PROTOCOL_VIOLATION; the rule of a user's request throws REQUEST_INVALID.
 */
import { OdmoeError } from '../base/errors/odmoe-error.js';
import { isAddress } from './addresses.js';
import { validateGenerateRequest } from './generate-validation.js';
import { MESSAGE_SIZE_LIMIT_BYTES, ROSTER_LIMIT_BYTES, ROWS_LIMIT } from './limits.js';
import type {
  AlignRows,
  Announce,
  BeginSequence,
  Execute,
  ExecuteResult,
  NodeIdentity,
  PackDescription,
  PackPiece,
  PassLayer,
  Placement,
  Predict,
  Prospect,
  ReadPackRequest,
  Release,
  SignedRoster,
  TensorType,
} from './messages.js';

/** Rules by the message's name in the .proto files. A rule is applied wherever the message occurs, after the rules of its inner messages. */
export const MESSAGE_RULES: Readonly<Record<string, (message: never) => unknown>> = {
  NodeIdentity: validateIdentity,
  Placement: validatePlacement,
  Prospect: validateProspect,
  Predict: validatePredict,
  Announce: validateAnnounce,
  Execute: validateExecute,
  ExecuteResult: validateResult,
  Release: (release: Release) => validatePassLayer('release', release),
  BeginSequence: validateBegin,
  AlignRows: validateAlignRows,
  PackDescription: validatePackDescription,
  ReadPackRequest: validateReadPackRequest,
  PackPiece: validatePackPiece,
  SignedRoster: validateSignedRoster,
  GenerateRequest: validateGenerateRequest,
};

/** Positions are uint32 on the wire. */
const POSITIONS_LIMIT = 2 ** 32;

const VALUE_BYTES: Record<TensorType, number> = {
  TENSOR_TYPE_UNSPECIFIED: 0,
  TENSOR_TYPE_F32: 4,
  TENSOR_TYPE_BF16: 2,
};

/** Most characters of a wrong id that an error shows. */
const ID_SHOWN_LIMIT = 100;

function validateIdentity({ id, role }: NodeIdentity): void {
  if (id === '') throw violation('an identity has no id');
  const isKnown = ['ROLE_MAIN', 'ROLE_SHADOW', 'ROLE_WORKER'].includes(role);
  if (!isKnown) throw violation(`the identity of ${id.slice(0, ID_SHOWN_LIMIT)} has the unknown role ${role}`);
}

function validatePredict(predict: Predict): void {
  const { experts, workers = [] } = predict;
  validatePassLayer('predict', predict);
  requireCriticalAmong('predict', predict);
  if (workers.length === 0 || workers.length === experts.length) return;
  throw violation(`a predict deals ${experts.length} experts to ${workers.length} workers`);
}

function validateAnnounce(announce: Announce): void {
  validatePassLayer('announce', announce);
  requireCriticalAmong('announce', announce);
}

function requireCriticalAmong(name: string, { experts, critical = [] }: Pick<Predict, 'experts' | 'critical'>): void {
  const named = new Set(experts);
  const other = critical.find((expert) => !named.has(expert));
  if (other !== undefined) throw violation(`${name} calls expert ${other} critical, which it does not name`);
}

/** Requires at least one row. Returns the number of rows. */
function validatePassLayer(name: string, { rows }: PassLayer): number {
  let count = 0;
  for (const range of rows) {
    if (range.rows < 1 || range.position + range.rows > POSITIONS_LIMIT) {
      throw violation(`${name} has a run of ${range.rows} rows at position ${range.position}`);
    }
    count += range.rows;
  }
  if (count < 1 || count > ROWS_LIMIT) throw violation(`${name} has ${count} rows: 1 to ${ROWS_LIMIT} are allowed`);
  return count;
}

function validateExecute(execute: Execute): void {
  const rows = validatePassLayer('execute', execute);
  validateTensor('execute', rows, execute, execute.hidden);
  if (execute.experts.length === 0) throw violation('an execute names no expert');
  requireDistinctExperts('execute', execute.experts);
  for (const { expert, rows: indexes, upper = [] } of execute.experts) {
    requireAscending(indexes, rows, `expert ${expert} of an execute is to run on row`);
    const expertRows = indexes.length === 0 ? rows : indexes.length;
    requireAscending(upper, expertRows, `expert ${expert} of an execute reads upper slices for its row`);
  }
}

function requireAscending(indexes: readonly number[], end: number, place: string): void {
  let previous = -1;
  for (const index of indexes) {
    if (index <= previous || index >= end) throw violation(`${place} ${index} after row ${previous} of ${end}`);
    previous = index;
  }
}

function validateResult(result: ExecuteResult): void {
  requireDistinctExperts('result', result.experts);
  for (const { rows, output, failure } of result.experts) {
    if (failure === null) validateTensor('result', rows, result, output);
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
  const { rows, values } = message;
  if (rows < 1 || rows > ROWS_LIMIT) throw violation(`cache_rows has ${rows} rows: 1 to ${ROWS_LIMIT} are allowed`);
  if (values.length === 0 || values.length % (rows * VALUE_BYTES.TENSOR_TYPE_F32) !== 0) {
    throw violation(`cache_rows has ${values.length} bytes for ${rows} rows of F32`);
  }
}

function validatePlacement(placement: Placement): void {
  const ids = new Set(placement.workers.map((worker) => worker.id));
  if (ids.size !== placement.workers.length) throw violation('a placement names one worker twice');
  for (const group of placement.groups) {
    const stranger = group.workerIds.find((id) => !ids.has(id));
    if (stranger === undefined) continue;
    throw violation(`a group of a placement names ${stranger.slice(0, ID_SHOWN_LIMIT)}, who is not among its workers`);
  }
  const bytes = Math.ceil((placement.layers * placement.experts) / 8);
  const wrong = placement.workers.find(
    ({ keptExperts: kept }) => kept !== undefined && ![0, bytes].includes(kept.length),
  );
  if (wrong?.keptExperts === undefined) return;
  throw violation(
    `a placement of ${placement.layers} layers with ${placement.experts} experts has ${wrong.keptExperts.length} bytes of kept experts: ` +
      `${bytes} or none are expected`,
  );
}

function validateProspect({ sources }: Prospect): void {
  for (const source of sources) if (!isAddress(source)) throw violation('a source of a prospect is not HOST:PORT');
}

function validateBegin({ promptTokens, tokenIds }: BeginSequence): void {
  if (promptTokens <= tokenIds.length) return;
  throw violation(`begin says that ${promptTokens} of ${tokenIds.length} tokens are the prompt`);
}

/** The bits must cover exactly the experts that the message names. */
function validatePackDescription({ layers, experts, heldExperts, slices }: PackDescription): void {
  const bytes = Math.ceil((layers * experts) / 8);
  const described =
    slices === null || slices === undefined ? [heldExperts] : [heldExperts, slices.heldUpper, slices.heldLower];
  const wrong = described.find(({ length }) => length !== bytes);
  if (layers < 1 || experts < 1 || wrong !== undefined || bytes > MESSAGE_SIZE_LIMIT_BYTES) {
    throw violation(
      `a pack of ${layers} layers with ${experts} experts is described by ${(wrong ?? heldExperts).length} bytes, ${bytes} are expected`,
    );
  }
  if (slices?.digest === '') throw violation('slices of a pack are described without a digest');
}

/** The holder of the pack checks that the file exists and is long enough. */
function validateReadPackRequest({ offsetBytes, lengthBytes }: ReadPackRequest): void {
  if (Number.isSafeInteger(offsetBytes) && Number.isSafeInteger(lengthBytes) && lengthBytes >= 1) return;
  throw violation(`${lengthBytes} bytes from byte ${offsetBytes} of a file of a pack cannot be read`);
}

function validatePackPiece({ bytes }: PackPiece): void {
  if (bytes.length === 0) throw violation('an empty piece of a pack came');
}

function validateSignedRoster({ signed }: SignedRoster): void {
  if (signed.length >= 1 && signed.length <= ROSTER_LIMIT_BYTES) return;
  throw violation(`a roster has ${signed.length} bytes: 1 to ${ROSTER_LIMIT_BYTES} are allowed`);
}

function violation(message: string): OdmoeError {
  return new OdmoeError('PROTOCOL_VIOLATION', message);
}
