/**
 * The file of states that main records while it serves (docs/predictor.md): a header, then rows of one size, each a token of an answer. It is only
 * written at its end, so that a part of a row can stand there alone. Pure.
 */
import { z } from 'zod';
import { crc32c } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import { RECORDED_TOKENS_LIMIT } from '../../shared/settings/setting-limits.js';
import type { Pack } from '../../packs/format/open-pack.js';

export const RECORDED_HEADER_BYTES = 4096;
/** CRC-32C of all that follows (4 bytes), zeros (4), number of the answer (8). */
export const ROW_HEAD_BYTES = 16;
const CHECKSUM_BYTES = 4;
const ANSWER_OFFSET = 8;
const VALUE_BYTES = 4;

const FORMAT = 'odmoe-recorded-states';
const VERSION = 1;

/** The pack that rows belong to. */
export type RecordedPack = Pick<Pack, 'directory' | 'manifest'>;

/** Sizes of a row: for each expert layer the state that it meets, and the experts that its router chooses. */
export interface RecordedSizes {
  readonly expertLayers: number;
  readonly hiddenSize: number;
  readonly expertsPerToken: number;
}

export function recordedRowBytes({ expertLayers, hiddenSize, expertsPerToken }: RecordedSizes): number {
  return ROW_HEAD_BYTES + expertLayers * (hiddenSize + expertsPerToken) * VALUE_BYTES;
}

/** One row, and the views of its values. */
export class RecordedRow {
  readonly bytes: Uint8Array;
  private readonly view: DataView;

  /** `bytes`: those of a row, at the beginning of their buffer; left out: all zero. */
  constructor(
    private readonly sizes: RecordedSizes,
    bytes: Uint8Array<ArrayBuffer> = new Uint8Array(recordedRowBytes(sizes)),
  ) {
    this.bytes = bytes;
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** The state that an expert layer meets: hiddenSize. */
  states(layer: number): Float32Array {
    const { hiddenSize } = this.sizes;
    return new Float32Array(this.bytes.buffer, ROW_HEAD_BYTES + layer * hiddenSize * VALUE_BYTES, hiddenSize);
  }

  /** The experts that its router chooses: expertsPerToken. */
  choices(layer: number): Int32Array {
    const { expertLayers, hiddenSize, expertsPerToken } = this.sizes;
    const first = ROW_HEAD_BYTES + (expertLayers * hiddenSize + layer * expertsPerToken) * VALUE_BYTES;
    return new Int32Array(this.bytes.buffer, first, expertsPerToken);
  }

  get answer(): number {
    return answerOf(this.bytes);
  }

  /** Writes the head of a row whose values are there. */
  seal(answer: number): void {
    this.view.setBigUint64(ANSWER_OFFSET, BigInt(answer), true);
    this.view.setUint32(0, this.checksum(), true);
  }

  get isWhole(): boolean {
    return this.view.getUint32(0, true) === this.checksum();
  }

  private checksum(): number {
    return crc32c(this.bytes.subarray(CHECKSUM_BYTES), 0);
  }
}

/** The number of the answer in the head of a row. */
export function answerOf(head: Uint8Array): number {
  return Number(new DataView(head.buffer, head.byteOffset, head.byteLength).getBigUint64(ANSWER_OFFSET, true));
}

const headerSchema = z.strictObject({
  format: z.literal(FORMAT),
  version: z.literal(VERSION),
  source_fingerprint: z.string(),
  expert_layers: z.int(),
  hidden_size: z.int(),
  experts_per_token: z.int(),
  /** Rows after which main records no more. */
  tokens: z.int().min(0).max(RECORDED_TOKENS_LIMIT),
});
const headSchema = z.looseObject({ format: z.literal(FORMAT), version: z.unknown() });

/** The header of a file of this pack: JSON with spaces behind it. */
export function recordedHeader({ manifest }: RecordedPack, tokens: number): Buffer {
  const { expertLayers, hiddenSize, expertsPerToken } = manifest.model.shape;
  const header: z.infer<typeof headerSchema> = {
    format: FORMAT,
    version: VERSION,
    source_fingerprint: manifest.source.fingerprint,
    expert_layers: expertLayers,
    hidden_size: hiddenSize,
    experts_per_token: expertsPerToken,
    tokens,
  };
  const bytes = Buffer.alloc(RECORDED_HEADER_BYTES, ' ');
  bytes.write(JSON.stringify(header));
  return bytes;
}

/**
 * The number of tokens after which main records no more.
 * @throws PACK_CORRUPT for a header that is damaged or of another model, MODEL_UNSUPPORTED (another version)
 */
export function readRecordedHeader(bytes: Uint8Array, path: string, pack: RecordedPack): number {
  const remedy = 'remove it, and let main record anew';
  const fail = (problem: string): OdmoeError => new OdmoeError('PACK_CORRUPT', `${path}: ${problem}; ${remedy}`);
  const value = jsonOf(bytes);
  const head = headSchema.safeParse(value);
  if (!head.success) throw fail('it is no file of recorded states, or a damaged one');
  if (head.data.version !== VERSION) {
    const found = JSON.stringify(head.data.version);
    throw new OdmoeError(
      'MODEL_UNSUPPORTED',
      `${path}: version ${found} of recorded states, this odmoe reads version ${VERSION}; ${remedy}`,
    );
  }
  const parsed = headerSchema.safeParse(value);
  if (!parsed.success) throw fail('it is damaged');
  const { tokens } = parsed.data;
  if (Buffer.compare(recordedHeader(pack, tokens), bytes) !== 0) throw fail('it was recorded of another model');
  return tokens;
}

function jsonOf(bytes: Uint8Array): unknown {
  try {
    return JSON.parse(Buffer.from(bytes).toString('utf8')) as unknown;
  } catch {
    return null;
  }
}
