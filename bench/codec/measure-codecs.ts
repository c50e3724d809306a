/** Measures codecs on tensors, in rounds. */
import { measureCodec, type CodecSpeed } from '../../native/index.js';
import { CODEC_LEVELS, type PackCodec } from '../../packs/format/pack-codec.js';
import { GaussianFiller, RandomBits } from '../synth/gaussian-values.js';
import type { TensorValues } from './expert-values.js';

export interface CodecRow extends CodecSpeed {
  codec: PackCodec;
  tensor: string;
  bytes: number;
}

/** Time in a round during which decoding and memcpy of one codec alternate. */
const ROUND_MS = 300;
const GAUSSIAN_COLUMNS = 4096;
/** A usual deviation of the weights of a large model. */
const GAUSSIAN_DEVIATION = 0.02;

/** Random values that are the same at every call. `bytes`: a multiple of 8192. */
export function gaussianValues(bytes: number): TensorValues {
  const values = new Uint8Array(bytes);
  new GaussianFiller('BF16', GAUSSIAN_DEVIATION).fill(values, new RandomBits(1, 1));
  return { name: 'random Gaussian', columns: GAUSSIAN_COLUMNS, values };
}

/** Measures each codec at its usual level on each tensor. Every round runs all codecs, so that other load slows all of them alike; medians count. */
export async function measureCodecs(
  codecs: readonly PackCodec[],
  tensors: readonly TensorValues[],
  rounds: number,
  onProgress: (done: number, total: number) => void,
  roundMs = ROUND_MS,
): Promise<CodecRow[]> {
  const rows: CodecRow[] = [];
  const total = tensors.length * rounds * codecs.length;
  let done = 0;
  for (const { name, columns, values } of tensors) {
    const speeds = codecs.map((): CodecSpeed[] => []);
    for (let round = 0; round < rounds; round += 1) {
      for (const [index, codec] of codecs.entries()) {
        const level = CODEC_LEVELS[codec]?.usual ?? 0;
        speeds[index]?.push(await measureCodec(codec, level, values, columns, roundMs));
        done += 1;
        onProgress(done, total);
      }
    }
    codecs.forEach((codec, index) => {
      rows.push({ codec, tensor: name, bytes: values.length, ...medians(speeds[index] ?? []) });
    });
  }
  return rows;
}

function medians(speeds: readonly CodecSpeed[]): CodecSpeed {
  const of = (figure: keyof CodecSpeed): number => {
    const values = speeds.map((speed) => speed[figure]).sort((left, right) => left - right);
    return values[Math.floor(values.length / 2)] ?? 0;
  };
  return {
    ratio: of('ratio'),
    encodeBytesPerS: of('encodeBytesPerS'),
    decodeBytesPerS: of('decodeBytesPerS'),
    memcpyBytesPerS: of('memcpyBytesPerS'),
  };
}
