/**
 * Encoders and decoders of the two messages that every layer sends: WorkerRequest.execute and WorkerReply.result. The bytes are those of
 * protobufjs, but its intermediate objects, a fifth of a hop's cost, are not made.
 */
import { OdmoeError } from '../base/errors/odmoe-error.js';
import type {
  Execute,
  ExecuteResult,
  ExpertFailure,
  ExpertResult,
  ExpertRows,
  KeptExperts,
  PassRow,
  RowRange,
  TensorType,
} from './messages.js';
import { NO_TIMES } from './messages.js';
import { FieldReader, MessageWriter, tagOf, WIRE_LENGTH_DELIMITED, WIRE_VARINT } from './wire-format.js';

const TENSOR_TYPES: readonly TensorType[] = ['TENSOR_TYPE_UNSPECIFIED', 'TENSOR_TYPE_F32', 'TENSOR_TYPE_BF16'];

/** Field numbers of worker.proto and placement.proto. */
const REQUEST_EXECUTE = 4;
const REPLY_RESULT = 3;
const EXECUTE = {
  requestId: 1,
  epoch: 2,
  pass: 3,
  layer: 4,
  rows: 5,
  hiddenSize: 6,
  dtype: 7,
  experts: 8,
  hidden: 9,
} as const;
const RESULT = { requestId: 1, epoch: 2, hiddenSize: 3, dtype: 4, experts: 5, last: 6, kept: 7 } as const;
const KEPT_EXPERTS = 1;
const EXPERT_ROWS = { expert: 1, rows: 2, last: 3, upper: 4 } as const;
const EXPERT_RESULT = {
  expert: 1,
  rows: 2,
  wasLoaded: 3,
  stallUs: 4,
  executeUs: 5,
  output: 6,
  failure: 7,
  loadUs: 8,
  loadedBeforeUs: 9,
  begunUs: 10,
  answeredUs: 11,
  calledUs: 12,
  endedUs: 13,
} as const;
const FAILURE = { code: 1, message: 2 } as const;
/** Field numbers of PassRow and RowRun. */
const ROW = { sequence: 1, position: 2, rows: 3 } as const;

/** The wire bytes of WorkerRequest{execute}. Numbers must be non-negative safe integers (INTERNAL otherwise). */
export function encodeExecuteRequest(execute: Execute): Buffer {
  const { pass } = execute;
  const message = new MessageWriter()
    .varint(EXECUTE.requestId, execute.requestId)
    .varint(EXECUTE.epoch, execute.epoch)
    .message(EXECUTE.pass, new MessageWriter().varint(ROW.sequence, pass.sequence).varint(ROW.position, pass.position))
    .varint(EXECUTE.layer, execute.layer);
  for (const { sequence, position, rows } of execute.rows) {
    const range = new MessageWriter().varint(ROW.sequence, sequence).varint(ROW.position, position);
    message.message(EXECUTE.rows, range.varint(ROW.rows, rows));
  }
  message.varint(EXECUTE.hiddenSize, execute.hiddenSize).varint(EXECUTE.dtype, TENSOR_TYPES.indexOf(execute.dtype));
  for (const { expert, rows, last, upper = [] } of execute.experts) {
    const asked = new MessageWriter().varint(EXPERT_ROWS.expert, expert).packed(EXPERT_ROWS.rows, rows);
    message.message(EXECUTE.experts, asked.varint(EXPERT_ROWS.last, last ? 1 : 0).packed(EXPERT_ROWS.upper, upper));
  }
  message.bytes(EXECUTE.hidden, execute.hidden);
  return new MessageWriter().message(REQUEST_EXECUTE, message).encode();
}

/** The wire bytes of WorkerReply{result}. Numbers must be non-negative safe integers (INTERNAL otherwise). */
export function encodeResultReply(result: ExecuteResult): Buffer {
  const message = new MessageWriter()
    .varint(RESULT.requestId, result.requestId)
    .varint(RESULT.epoch, result.epoch)
    .varint(RESULT.hiddenSize, result.hiddenSize)
    .varint(RESULT.dtype, TENSOR_TYPES.indexOf(result.dtype));
  for (const expert of result.experts) message.message(RESULT.experts, expertResult(expert));
  message.varint(RESULT.last, result.last ? 1 : 0);
  const { kept } = result;
  if (kept !== undefined && kept !== null)
    message.message(RESULT.kept, new MessageWriter().packed(KEPT_EXPERTS, kept.experts));
  return new MessageWriter().message(REPLY_RESULT, message).encode();
}

function expertResult(result: ExpertResult): MessageWriter {
  const { expert, rows, wasLoaded, stallUs, executeUs, output, failure } = result;
  const message = new MessageWriter()
    .varint(EXPERT_RESULT.expert, expert)
    .varint(EXPERT_RESULT.rows, rows)
    .varint(EXPERT_RESULT.wasLoaded, wasLoaded ? 1 : 0)
    .varint(EXPERT_RESULT.stallUs, stallUs)
    .varint(EXPERT_RESULT.executeUs, executeUs)
    .bytes(EXPERT_RESULT.output, output)
    .varint(EXPERT_RESULT.loadUs, result.loadUs)
    .varint(EXPERT_RESULT.loadedBeforeUs, result.loadedBeforeUs)
    .varint(EXPERT_RESULT.begunUs, result.begunUs)
    .varint(EXPERT_RESULT.answeredUs, result.answeredUs)
    .varint(EXPERT_RESULT.calledUs, result.calledUs)
    .varint(EXPERT_RESULT.endedUs, result.endedUs);
  if (failure === null) return message;
  const { code, message: text } = failure;
  return message.message(
    EXPERT_RESULT.failure,
    new MessageWriter().text(FAILURE.code, code).text(FAILURE.message, text),
  );
}

/**
 * The Execute of a WorkerRequest that holds nothing else. Returns null if the message has another form; the general decoder then decodes it.
 * `hidden` is a view into `bytes`, possibly at an odd offset.
 */
export function decodeExecuteRequest(bytes: Buffer): Execute | null {
  const reader = onlyMember(bytes, delimited(REQUEST_EXECUTE));
  if (reader === null) return null;
  const rows: RowRange[] = [];
  const experts: ExpertRows[] = [];
  let pass: PassRow | null = null;
  const { output: hidden } = NOTHING;
  const execute = { requestId: 0, epoch: 0, layer: 0, rows, hiddenSize: 0, dtype: tensorType(0), experts, hidden };
  while (!reader.done) {
    const tag = reader.uint32();
    switch (tag) {
      case varint(EXECUTE.requestId):
        execute.requestId = reader.varint();
        break;
      case varint(EXECUTE.epoch):
        execute.epoch = reader.varint();
        break;
      case delimited(EXECUTE.pass): {
        const { sequence, position } = readRange(reader.message());
        pass = { sequence, position };
        break;
      }
      case varint(EXECUTE.layer):
        execute.layer = reader.uint32();
        break;
      case delimited(EXECUTE.rows):
        rows.push(readRange(reader.message()));
        break;
      case varint(EXECUTE.hiddenSize):
        execute.hiddenSize = reader.uint32();
        break;
      case varint(EXECUTE.dtype):
        execute.dtype = tensorType(reader.uint32());
        break;
      case delimited(EXECUTE.experts):
        experts.push(readExpertRows(reader.message()));
        break;
      case delimited(EXECUTE.hidden):
        execute.hidden = reader.lengthDelimited();
        break;
      default:
        reader.skip(tag & 7);
    }
  }
  return pass === null ? null : { ...execute, pass };
}

function readRange(reader: FieldReader): RowRange {
  const range = { sequence: 0, position: 0, rows: 0 };
  while (!reader.done) {
    const tag = reader.uint32();
    if (tag === varint(ROW.sequence)) range.sequence = reader.varint();
    else if (tag === varint(ROW.position)) range.position = reader.uint32();
    else if (tag === varint(ROW.rows)) range.rows = reader.uint32();
    else reader.skip(tag & 7);
  }
  return range;
}

function readExpertRows(reader: FieldReader): ExpertRows {
  const rows: number[] = [];
  const upper: number[] = [];
  const asked = { expert: 0, rows, last: false, upper };
  while (!reader.done) {
    const tag = reader.uint32();
    if (tag === varint(EXPERT_ROWS.expert)) asked.expert = reader.uint32();
    else if (tag === varint(EXPERT_ROWS.last)) asked.last = reader.varint() !== 0;
    else if (!readNumbers(reader, tag, EXPERT_ROWS.rows, rows) && !readNumbers(reader, tag, EXPERT_ROWS.upper, upper))
      reader.skip(tag & 7);
  }
  return asked;
}

/** Adds one value or a packed list of a repeated field to `numbers`. False, and nothing is read: the tag is another field's. */
function readNumbers(reader: FieldReader, tag: number, field: number, numbers: number[]): boolean {
  if (tag === varint(field)) numbers.push(reader.uint32());
  else if (tag === delimited(field)) {
    const packed = reader.message();
    while (!packed.done) numbers.push(packed.uint32());
  } else return false;
  return true;
}

/** The ExecuteResult of a WorkerReply that holds nothing else; null if the message has another form. */
export function decodeResultReply(bytes: Buffer): ExecuteResult | null {
  const reader = onlyMember(bytes, delimited(REPLY_RESULT));
  if (reader === null) return null;
  const experts: ExpertResult[] = [];
  const result: ExecuteResult = {
    requestId: 0,
    epoch: 0,
    hiddenSize: 0,
    dtype: tensorType(0),
    experts,
    last: false,
    kept: null,
  };
  while (!reader.done) {
    const tag = reader.uint32();
    if (tag === varint(RESULT.requestId)) result.requestId = reader.varint();
    else if (tag === varint(RESULT.epoch)) result.epoch = reader.varint();
    else if (tag === varint(RESULT.hiddenSize)) result.hiddenSize = reader.uint32();
    else if (tag === varint(RESULT.dtype)) result.dtype = tensorType(reader.uint32());
    else if (tag === delimited(RESULT.experts)) experts.push(readExpertResult(reader.message()));
    else if (tag === varint(RESULT.last)) result.last = reader.varint() !== 0;
    else if (tag === delimited(RESULT.kept)) result.kept = readKept(reader.message());
    else reader.skip(tag & 7);
  }
  return result;
}

function readKept(reader: FieldReader): KeptExperts {
  const experts: number[] = [];
  while (!reader.done) {
    const tag = reader.uint32();
    if (!readNumbers(reader, tag, KEPT_EXPERTS, experts)) reader.skip(tag & 7);
  }
  return { experts };
}

function readExpertResult(reader: FieldReader): ExpertResult {
  const result: ExpertResult = { ...NOTHING };
  while (!reader.done) {
    const tag = reader.uint32();
    if (tag === varint(EXPERT_RESULT.expert)) result.expert = reader.uint32();
    else if (tag === varint(EXPERT_RESULT.rows)) result.rows = reader.uint32();
    else if (tag === varint(EXPERT_RESULT.wasLoaded)) result.wasLoaded = reader.varint() !== 0;
    else if (tag === varint(EXPERT_RESULT.stallUs)) result.stallUs = reader.uint32();
    else if (tag === varint(EXPERT_RESULT.executeUs)) result.executeUs = reader.uint32();
    else if (tag === delimited(EXPERT_RESULT.output)) result.output = reader.lengthDelimited();
    else if (tag === delimited(EXPERT_RESULT.failure)) result.failure = readFailure(reader.message());
    else if (tag === varint(EXPERT_RESULT.loadUs)) result.loadUs = reader.uint32();
    else if (tag === varint(EXPERT_RESULT.loadedBeforeUs)) result.loadedBeforeUs = reader.uint32();
    else if (tag === varint(EXPERT_RESULT.begunUs)) result.begunUs = reader.uint32();
    else if (tag === varint(EXPERT_RESULT.answeredUs)) result.answeredUs = reader.uint32();
    else if (tag === varint(EXPERT_RESULT.calledUs)) result.calledUs = reader.uint32();
    else if (tag === varint(EXPERT_RESULT.endedUs)) result.endedUs = reader.uint32();
    else reader.skip(tag & 7);
  }
  return result;
}

const NOTHING: ExpertResult = {
  expert: 0,
  rows: 0,
  wasLoaded: false,
  stallUs: 0,
  executeUs: 0,
  ...NO_TIMES,
  output: Buffer.alloc(0),
  failure: null,
};

function readFailure(reader: FieldReader): ExpertFailure {
  const failure = { code: '', message: '' };
  while (!reader.done) {
    const tag = reader.uint32();
    if (tag === delimited(FAILURE.code)) failure.code = reader.text();
    else if (tag === delimited(FAILURE.message)) failure.message = reader.text();
    else reader.skip(tag & 7);
  }
  return failure;
}

function varint(field: number): number {
  return tagOf(field, WIRE_VARINT);
}

function delimited(field: number): number {
  return tagOf(field, WIRE_LENGTH_DELIMITED);
}

/** A reader of the message's only member if the message starts with `tag` and the member fills it; else null. */
function onlyMember(bytes: Buffer, tag: number): FieldReader | null {
  if (bytes[0] !== tag) return null;
  const outer = new FieldReader(bytes, 1, bytes.length);
  const length = outer.varint();
  return outer.position + length === bytes.length ? new FieldReader(bytes, outer.position, bytes.length) : null;
}

function tensorType(value: number): TensorType {
  const type = TENSOR_TYPES[value];
  if (type === undefined)
    throw new OdmoeError('PROTOCOL_VIOLATION', `a message holds a tensor of unknown type ${value}`);
  return type;
}
