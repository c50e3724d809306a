/** The codecs for making a pack, and their levels (docs/pack-format.md, "Codecs"). Pure. */
import { OdmoeError } from '../../shared/base/errors/odmoe-error.js';
import type { ChunkCodec, ExactFormat } from '../../shared/model/tensor-source.js';
import { hasE4m3Codes, isQuantizedSplit } from '../../shared/model/weight-dtype.js';

/** Codecs of exponents. */
export const PACK_CODECS = ['raw', 'zstd', 'lz4hc', 'fixed4', 'huffman'] as const satisfies readonly ChunkCodec[];
export type PackCodec = (typeof PACK_CODECS)[number];

export interface LevelRange {
  lowest: number;
  highest: number;
  /** Default level. */
  usual: number;
}

/**
 * Levels by codec; null if a codec has none. Exponents hardly repeat in sequences. zstd's level 1, which does not search for accidental
 * repetitions, makes them as small as level 19 does, a hundred times as fast.
 */
export const CODEC_LEVELS: Readonly<Record<PackCodec, LevelRange | null>> = {
  raw: null,
  zstd: { lowest: 1, highest: 22, usual: 1 },
  lz4hc: { lowest: 1, highest: 12, usual: 9 },
  fixed4: null,
  huffman: null,
};

/** Codecs whose bytes depend on odmoe alone; the bytes of the others also depend on the version of a library. */
export const REPRODUCIBLE_CODECS: ReadonlySet<PackCodec> = new Set(['raw', 'fixed4', 'huffman']);

/** Codec and level of a pack's exponents. */
export interface CodecSetting {
  codec: PackCodec;
  /** Null if the codec has no levels. */
  level: number | null;
}

export function isPackCodec(name: string): name is PackCodec {
  return (PACK_CODECS as readonly string[]).includes(name);
}

/** The error in the level of a setting; null: none. */
export function levelProblem({ codec, level }: CodecSetting): string | null {
  const range = CODEC_LEVELS[codec];
  if (range === null) return level === null ? null : `the codec ${codec} has no levels`;
  if (level !== null && Number.isInteger(level) && level >= range.lowest && level <= range.highest) return null;
  return `expected a level of ${codec} from ${range.lowest} to ${range.highest}`;
}

/** The setting for a codec's name and a level; `level` null: the default. @throws USAGE */
export function codecSetting(codec: string, level: number | null): CodecSetting {
  if (!isPackCodec(codec)) {
    throw new OdmoeError('USAGE', `codec ${JSON.stringify(codec)} is not known; known: ${PACK_CODECS.join(', ')}`);
  }
  const setting = { codec, level: level ?? CODEC_LEVELS[codec]?.usual ?? null };
  const problem = levelProblem(setting);
  if (problem !== null) throw new OdmoeError('USAGE', `level ${level}: ${problem}`);
  return setting;
}

/** The setting of a pack whose experts are shipped in these formats: raw if the codec wanted would code none of them. */
export function settingOfFormats(formats: readonly ExactFormat[], setting: CodecSetting): CodecSetting {
  return formats.some((format) => isCoded(format, setting)) ? setting : { codec: 'raw', level: null };
}

/** Codes of four bits, and GGUF's blocks, have no exponents; only zstd can try to make them smaller. */
function isCoded(format: ExactFormat, { codec }: CodecSetting): boolean {
  if (!isQuantizedSplit(format) || codec === 'zstd') return true;
  return codec === 'huffman' && hasE4m3Codes(format);
}

/** "zstd level 1", "huffman". */
export function describeCodec({ codec, level }: CodecSetting): string {
  return level === null ? codec : `${codec} level ${level}`;
}
