import { availableParallelism } from 'node:os';
import type { CodecSpeed, ReadSpeed } from '../../native/index.js';
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { Checkpoint } from '../checkpoint/checkpoint.js';
import {
  EXPERT_MATRICES,
  type ChunkCodec,
  type ExactFormat,
  type TensorSource,
} from '../../shared/model/tensor-source.js';
import {
  exactFormatOf,
  hasE4m3Codes,
  isQuantizedSplit,
  planeRowBytes,
  planeSplit,
  rowBytes,
} from '../../shared/model/weight-dtype.js';
import { shardCodec } from '../format/pack-layout.js';
import { shippedFormats } from '../../shared/model/format-shares.js';
import { type CodecSetting, codecSetting, PACK_CODECS, settingOfFormats } from '../format/pack-codec.js';
import {
  chooseCodec,
  type CodecChoice,
  type CodecMeasurement,
  type LoadingMachine,
  usualDecompressionThreads,
} from './codec-choice.js';
import type { ByteTools } from './packing-context.js';
import { planeOf } from './dense-file.js';
import { expertBytes } from './model-bytes.js';
import { type OpenTensor, SourceReader } from './source-reader.js';

/** Number of expert matrices in the sample, spread over the layers, and most values of each. */
const SAMPLED_MATRICES = 4;
const SAMPLED_VALUES = 1024 * 1024;
const MEASURE_DECODE_MS = 60;
const MEASURE_READS_MS = 800;
const MEASURE_READS_BYTES = 512 * 1024 * 1024;

/** Every codec at its default level, and zstd also at a high one. */
export const MEASURED_SETTINGS: readonly CodecSetting[] = [
  ...PACK_CODECS.map((codec) => codecSetting(codec, null)),
  codecSetting('zstd', 19),
];

/** Functions of the native addon that measuring uses. */
export interface MeasuringTools extends Pick<ByteTools, 'splitPlanes' | 'joinPlanes'> {
  openTensor: OpenTensor;
  measureCodec(
    codec: ChunkCodec,
    level: number,
    bf16Values: Uint8Array,
    columns: number,
    milliseconds: number,
  ): Promise<CodecSpeed>;
  measureReads(path: string, bytes: number, milliseconds: number): Promise<ReadSpeed>;
}

export interface MeasuredChoice extends CodecChoice {
  machine: LoadingMachine;
  /** True if the reads went past the page cache; otherwise the speed may be that of memory. */
  storageDirect: boolean;
  /** Bytes of one expert as shipped. */
  expertBytes: number;
  sampledBytes: number;
}

/**
 * Rows of an expert's matrix, for measuring: planes 0 and 1 of its split, joined as BF16 values, because measuring works on BF16. Quantized codes
 * stand in the place of exponents, beside zeros.
 */
interface Sample {
  format: ExactFormat;
  columns: number;
  /** Bytes of the matrix as shipped, and of these the bytes of quantized codes (0: the format is not quantized). */
  codeBytes: number;
  sourceBytes: number;
  standIn: Uint8Array;
}

/**
 * Measures every codec on a sample of the checkpoint's experts, and the speed of the checkpoint's storage, and chooses a codec. Takes some
 * seconds and some ten MiB. @throws CANCELLED, MODEL_CORRUPT, STORAGE_FAILED
 */
export async function measureAndChoose(
  checkpoint: Checkpoint,
  tools: MeasuringTools,
  signal: AbortSignal | null,
): Promise<MeasuredChoice> {
  const reader = new SourceReader(tools.openTensor, signal);
  const samples: Sample[] = [];
  const measurements: CodecMeasurement[] = [];
  for (const matrix of sampledMatrices(checkpoint)) samples.push(await sampleOf(matrix, reader, tools));
  const formats = shippedFormats(checkpoint);
  for (const setting of measuredSettings(formats)) {
    reader.assertWanted();
    measurements.push(await measureSetting(setting, samples, tools));
  }
  const [largest] = [...checkpoint.files].sort((a, b) => b.sizeBytes - a.sizeBytes);
  if (largest === undefined) throw new OdmoeError('INTERNAL', 'an opened checkpoint without files');
  const readBytes = Math.min(largest.sizeBytes, MEASURE_READS_BYTES);
  const storage = await tools.measureReads(largest.path, readBytes, MEASURE_READS_MS);
  const machine: LoadingMachine = {
    storageBytesPerS: storage.bytesPerS,
    decompressionThreads: usualDecompressionThreads(availableParallelism()),
  };
  const oneExpertBytes = expertBytes(checkpoint.expert(0, 0));
  const choice = chooseCodec(measurements, oneExpertBytes, machine);
  return {
    ...choice,
    reason: choice.reason + codesRemark(formats, choice.chosen),
    machine,
    storageDirect: storage.direct,
    expertBytes: oneExpertBytes,
    sampledBytes: samples.reduce((sum, sample) => sum + sample.sourceBytes, 0),
  };
}

/** The settings that make a difference for these formats. */
export function measuredSettings(formats: readonly ExactFormat[]): CodecSetting[] {
  return MEASURED_SETTINGS.filter((setting) => settingOfFormats(formats, setting).codec === setting.codec);
}

/** The remark behind the reason for a choice. */
export function codesRemark(formats: readonly ExactFormat[], chosen: CodecSetting): string {
  if (!formats.every(isQuantizedSplit) || chosen.codec !== 'raw') return '';
  if (formats.some(hasE4m3Codes)) return '; only scales are coded';
  return `; the codes of ${formats.join(' and ')} have almost nothing to give`;
}

/** `count` evenly spread items. Neighbouring picks are shifted by one, because experts come as gate, up, down, and so all three parts occur. */
export function spread<Item>(items: readonly Item[], count: number): Item[] {
  const places = Array.from(
    { length: count },
    (_, index) => Math.floor(((index + 0.5) * items.length) / count) + index,
  );
  return [...new Set(places)].flatMap((place) => items[place] ?? []);
}

/** Matrices of experts, spread over the model, with different parts. */
function sampledMatrices(checkpoint: Checkpoint): TensorSource[] {
  const { expertLayers, experts } = checkpoint.shape;
  const parts = EXPERT_MATRICES.length;
  const places = spread(
    Array.from({ length: expertLayers * experts * parts }, (_, place) => place),
    SAMPLED_MATRICES,
  );
  return places.flatMap((place) => {
    const number = Math.floor(place / parts);
    const part = EXPERT_MATRICES[place % parts];
    return part === undefined ? [] : checkpoint.expert(Math.floor(number / experts), number % experts)[part];
  });
}

/** The first rows of a matrix. */
async function sampleOf(source: TensorSource, reader: SourceReader, tools: MeasuringTools): Promise<Sample> {
  const { rows, columns } = source;
  const format = exactFormatOf(source.split);
  const split = planeSplit(format, 'huffman');
  const isQuantized = isQuantizedSplit(split);
  const codeRowBytes = planeRowBytes(split, columns)[0] ?? 0;
  const sampledRows = Math.min(rows, Math.max(1, Math.floor(SAMPLED_VALUES / columns)));
  const joined: Uint8Array[] = [];
  const tensor = reader.open(source);
  try {
    for await (const { planes } of tensor.next(sampledRows)) {
      const codes = planeOf(planes, 0);
      const [exponents, low] = isQuantized ? [codes, new Uint8Array(codes.length)] : tools.splitPlanes(codes, split);
      if (exponents === undefined || low === undefined) throw new OdmoeError('INTERNAL', 'a split without two planes');
      joined.push(tools.joinPlanes([exponents, low], 'bf16-e8-sm8'));
    }
  } finally {
    tensor.dispose();
  }
  const standIn = new Uint8Array(Buffer.concat(joined));
  const sourceBytes = sampledRows * rowBytes(source.split, columns);
  if (!isQuantized) return { format, columns, sourceBytes, codeBytes: 0, standIn };
  return { format, columns: codeRowBytes, sourceBytes, codeBytes: sampledRows * codeRowBytes, standIn };
}

async function measureSetting(
  setting: CodecSetting,
  samples: readonly Sample[],
  tools: MeasuringTools,
): Promise<CodecMeasurement> {
  let [sourceBytes, storedBytes, encodeS, decodeS] = [0, 0, 0, 0];
  for (const { format, columns, sourceBytes: bytes, codeBytes, standIn } of samples) {
    const codec = shardCodec(planeSplit(format, setting.codec), 0, setting.codec) ?? 'raw';
    const level = codec === setting.codec ? (setting.level ?? 0) : 0;
    const speed = await tools.measureCodec(codec, level, standIn, columns, MEASURE_DECODE_MS);
    sourceBytes += bytes;
    storedBytes +=
      codeBytes > 0
        ? bytes - codeBytes + codeBytes * codesRatio(speed.ratio)
        : bytes * shippedRatio(format, setting.codec, speed.ratio);
    encodeS += standIn.length / speed.encodeBytesPerS;
    decodeS += standIn.length / speed.decodeBytesPerS;
  }
  const ratio = storedBytes / sourceBytes;
  return { ...setting, ratio, encodeBytesPerS: sourceBytes / encodeS, decodeBytesPerS: sourceBytes / decodeS };
}

/** Ratio of a format's values, from the ratio of their planes 0 and 1 as BF16. The size of the other planes is known. */
export function shippedRatio(format: ExactFormat, codec: ChunkCodec, standInRatio: number): number {
  if (codec === 'raw') return 1;
  if (format === 'fp32') return (2 * standInRatio + 2) / 4;
  return format === 'fp16' ? (2 * standInRatio + 3 / 8) / 2 : standInRatio;
}

/** Ratio of codes, from their ratio as the exponents of BF16 values. */
export function codesRatio(standInRatio: number): number {
  return 2 * standInRatio - 1;
}
