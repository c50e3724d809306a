/**
 * Encoders and decoders of the two messages that every expert execution costs: WorkerRequest.execute and
 * WorkerReply.result. Same bytes as protobufjs understands, without its intermediate objects: a fifth of a hop's cost.
 */
import { OdmoeError } from '../errors/index.js';
import type { Execute, ExecuteResult, TensorType } from './messages.js';
import {
  FieldReader,
  WIRE_LENGTH_DELIMITED,
  varintBytes,
  varintFieldBytes,
  writeVarint,
  writeVarintField,
} from './wire-format.js';

const TENSOR_TYPES: readonly TensorType[] = ['TENSOR_TYPE_UNSPECIFIED', 'TENSOR_TYPE_F32', 'TENSOR_TYPE_BF16'];

/** Field numbers of worker.proto. */
const REQUEST_EXECUTE = 4;
const REPLY_RESULT = 3;
const EXECUTE = {
  requestId: 1,
  epoch: 2,
  sequence: 3,
  position: 4,
  layer: 5,
  expert: 6,
  rows: 7,
  hiddenSize: 8,
  dtype: 9,
  hidden: 10,
  last: 11,
} as const;
const RESULT = {
  requestId: 1,
  epoch: 2,
  rows: 3,
  hiddenSize: 4,
  dtype: 5,
  output: 6,
  wasLoaded: 7,
  stallUs: 8,
  executeUs: 9,
} as const;

export const EXECUTE_TAG = (REQUEST_EXECUTE << 3) | WIRE_LENGTH_DELIMITED;
export const RESULT_TAG = (REPLY_RESULT << 3) | WIRE_LENGTH_DELIMITED;

/** WorkerRequest{execute} as it goes over the wire. Numbers must be non-negative safe integers (INTERNAL otherwise). */
export function encodeExecuteRequest(execute: Execute): Buffer {
  const fields: Field[] = [
    [EXECUTE.requestId, execute.requestId],
    [EXECUTE.epoch, execute.epoch],
    [EXECUTE.sequence, execute.sequence],
    [EXECUTE.position, execute.position],
    [EXECUTE.layer, execute.layer],
    [EXECUTE.expert, execute.expert],
    [EXECUTE.rows, execute.rows],
    [EXECUTE.hiddenSize, execute.hiddenSize],
    [EXECUTE.dtype, TENSOR_TYPES.indexOf(execute.dtype)],
    [EXECUTE.last, execute.last ? 1 : 0],
  ];
  return encodeTensorMessage(EXECUTE_TAG, fields, EXECUTE.hidden, execute.hidden);
}

/** WorkerReply{result} as it goes over the wire. Numbers must be non-negative safe integers (INTERNAL otherwise). */
export function encodeResultReply(result: ExecuteResult): Buffer {
  const fields: Field[] = [
    [RESULT.requestId, result.requestId],
    [RESULT.epoch, result.epoch],
    [RESULT.rows, result.rows],
    [RESULT.hiddenSize, result.hiddenSize],
    [RESULT.dtype, TENSOR_TYPES.indexOf(result.dtype)],
    [RESULT.wasLoaded, result.wasLoaded ? 1 : 0],
    [RESULT.stallUs, result.stallUs],
    [RESULT.executeUs, result.executeUs],
  ];
  return encodeTensorMessage(RESULT_TAG, fields, RESULT.output, result.output);
}

type Field = readonly [number: number, value: number];

function encodeTensorMessage(tag: number, fields: Field[], tensorField: number, tensor: Uint8Array): Buffer {
  let innerBytes = 0;
  for (const [field, value] of fields) {
    if (!Number.isSafeInteger(value) || value < 0) {
      throw new OdmoeError('INTERNAL', `field ${field} of a tensor message is ${value}: it takes whole numbers from 0`);
    }
    innerBytes += varintFieldBytes(value);
  }
  if (tensor.length > 0) innerBytes += 1 + varintBytes(tensor.length) + tensor.length;
  const message = Buffer.allocUnsafe(1 + varintBytes(innerBytes) + innerBytes);
  message[0] = tag;
  let offset = writeVarint(message, 1, innerBytes);
  for (const [field, value] of fields) offset = writeVarintField(message, offset, field, value);
  if (tensor.length > 0) {
    message[offset] = (tensorField << 3) | WIRE_LENGTH_DELIMITED;
    offset = writeVarint(message, offset + 1, tensor.length);
    message.set(tensor, offset);
  }
  return message;
}

/**
 * The Execute of a WorkerRequest that holds nothing else; null when the message is of another form, which the general
 * decoder then takes. `hidden` is a view into `bytes`, possibly at an odd offset.
 */
export function decodeExecuteRequest(bytes: Buffer): Execute | null {
  const reader = onlyMember(bytes, EXECUTE_TAG);
  if (reader === null) return null;
  const execute: Execute = { ...EMPTY_EXECUTE };
  while (!reader.done) {
    const tag = reader.uint32();
    if (!readExecuteField(execute, reader, tag)) reader.skip(tag & 7);
  }
  return execute;
}

const NO_BYTES = Buffer.alloc(0);
const EMPTY_EXECUTE: Execute = {
  requestId: 0,
  epoch: 0,
  sequence: 0,
  position: 0,
  layer: 0,
  expert: 0,
  rows: 0,
  hiddenSize: 0,
  dtype: 'TENSOR_TYPE_UNSPECIFIED',
  hidden: NO_BYTES,
  last: false,
};

function readExecuteField(execute: Execute, reader: FieldReader, tag: number): boolean {
  switch (tag) {
    case EXECUTE.requestId << 3:
      execute.requestId = reader.varint();
      return true;
    case EXECUTE.epoch << 3:
      execute.epoch = reader.varint();
      return true;
    case EXECUTE.sequence << 3:
      execute.sequence = reader.varint();
      return true;
    case EXECUTE.position << 3:
      execute.position = reader.uint32();
      return true;
    case EXECUTE.layer << 3:
      execute.layer = reader.uint32();
      return true;
    case EXECUTE.expert << 3:
      execute.expert = reader.uint32();
      return true;
    case EXECUTE.rows << 3:
      execute.rows = reader.uint32();
      return true;
    case EXECUTE.hiddenSize << 3:
      execute.hiddenSize = reader.uint32();
      return true;
    case EXECUTE.dtype << 3:
      execute.dtype = tensorType(reader.uint32());
      return true;
    case EXECUTE.last << 3:
      execute.last = reader.varint() !== 0;
      return true;
    case (EXECUTE.hidden << 3) | WIRE_LENGTH_DELIMITED:
      execute.hidden = reader.lengthDelimited();
      return true;
    default:
      return false;
  }
}

/** The ExecuteResult of a WorkerReply that holds nothing else; null when the message is of another form. */
export function decodeResultReply(bytes: Buffer): ExecuteResult | null {
  const reader = onlyMember(bytes, RESULT_TAG);
  if (reader === null) return null;
  const result: ExecuteResult = { ...EMPTY_RESULT };
  while (!reader.done) {
    const tag = reader.uint32();
    if (!readResultField(result, reader, tag)) reader.skip(tag & 7);
  }
  return result;
}

const EMPTY_RESULT: ExecuteResult = {
  requestId: 0,
  epoch: 0,
  rows: 0,
  hiddenSize: 0,
  dtype: 'TENSOR_TYPE_UNSPECIFIED',
  output: NO_BYTES,
  wasLoaded: false,
  stallUs: 0,
  executeUs: 0,
};

function readResultField(result: ExecuteResult, reader: FieldReader, tag: number): boolean {
  switch (tag) {
    case RESULT.requestId << 3:
      result.requestId = reader.varint();
      return true;
    case RESULT.epoch << 3:
      result.epoch = reader.varint();
      return true;
    case RESULT.rows << 3:
      result.rows = reader.uint32();
      return true;
    case RESULT.hiddenSize << 3:
      result.hiddenSize = reader.uint32();
      return true;
    case RESULT.dtype << 3:
      result.dtype = tensorType(reader.uint32());
      return true;
    case RESULT.wasLoaded << 3:
      result.wasLoaded = reader.varint() !== 0;
      return true;
    case RESULT.stallUs << 3:
      result.stallUs = reader.uint32();
      return true;
    case RESULT.executeUs << 3:
      result.executeUs = reader.uint32();
      return true;
    case (RESULT.output << 3) | WIRE_LENGTH_DELIMITED:
      result.output = reader.lengthDelimited();
      return true;
    default:
      return false;
  }
}

/** A reader of the message's one member when it starts with `tag` and fills the message; else null. */
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
