import { SingleBar } from 'cli-progress';
import { InvalidArgumentError, type Command } from 'commander';
import { join } from 'node:path';
import { tableLines } from '../../cli/output/table.js';
import { openModelSource } from '../../packs/open-model-source.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { wholeNumberFlag } from '../../shared/settings/whole-number-flag.js';
import { isPackCodec, type PackCodec, PACK_CODECS } from '../../packs/format/pack-codec.js';
import { formatBytes } from '../../shared/base/text/units.js';
import { expertValues } from './expert-values.js';
import { type CodecRow, gaussianValues, measureCodecs } from './measure-codecs.js';
import { standardError } from '../../shared/base/text/text-output.js';
import type { MeasuredRun } from '../history/measured-run.js';

const MEBIBYTE = 1024 * 1024;
const MOST_ROUNDS = 1000;
const MOST_GAUSSIAN_MEBIBYTES = 1024;
const EXPERTS_LIMIT_BYTES = 64 * MEBIBYTE;

interface CodecFlags {
  codec: PackCodec[];
  rounds: number;
  gaussian: number;
  json?: boolean;
}

/** Adds `odmoe bench codec`. */
export function registerBenchCodec(bench: Command, run: MeasuredRun): void {
  bench
    .command('codec')
    .description('size and speed of the codecs on one core, beside memcpy in the same run')
    .argument('[model]', 'a pack or a checkpoint with BF16 experts', join(packageRoot(), 'models', 'demo'))
    .option('--codec <list>', `of ${PACK_CODECS.join(', ')}`, codecs, ['zstd', 'lz4hc', 'fixed4', 'huffman'])
    .option('--rounds <count>', 'rounds over all codecs; medians count', wholeNumberFlag(1, MOST_ROUNDS), 5)
    .option('--gaussian <MiB>', 'size of the random tensor', wholeNumberFlag(1, MOST_GAUSSIAN_MEBIBYTES), 64)
    .option('--json', 'one JSON array on stdout')
    .addHelpText(
      'after',
      `
Speeds are of BF16: encoding takes it apart and codes the exponents, decoding ends in row-major values. The ratio is of the whole
tensor, signs and mantissas as they are. A tensor that fits a cache is copied at the cache's speed; the random one does not fit.

Examples:
  odmoe bench codec
  odmoe bench codec ~/packs/mixtral --codec huffman,fixed4 --rounds 9`,
    )
    .action((directory: string, flags: CodecFlags) => benchCodecs(directory, flags, run));
}

async function benchCodecs(directory: string, flags: CodecFlags, run: MeasuredRun): Promise<void> {
  const source = await openModelSource(directory);
  const tensors = [...(await expertValues(source, EXPERTS_LIMIT_BYTES)), gaussianValues(flags.gaussian * MEBIBYTE)];
  const bar = standardError.isTerminal
    ? new SingleBar({ format: 'codecs {bar} {value}/{total} measurements, {eta_formatted}', clearOnComplete: true })
    : null;
  bar?.start(tensors.length * flags.rounds * flags.codec.length, 0);
  try {
    const rows = await measureCodecs(flags.codec, tensors, flags.rounds, (done) => bar?.update(done));
    bar?.stop();
    run.print(rows.map(asJson), flags.json === true, () => asTable(rows));
  } finally {
    bar?.stop();
  }
}

const gigabytes = (bytesPerS: number): number => bytesPerS / 1e9;

function asJson(row: CodecRow): object {
  return {
    codec: row.codec,
    tensor: row.tensor,
    bytes: row.bytes,
    ratio: row.ratio,
    encode_gb_s: gigabytes(row.encodeBytesPerS),
    decode_gb_s: gigabytes(row.decodeBytesPerS),
    memcpy_gb_s: gigabytes(row.memcpyBytesPerS),
  };
}

function asTable(rows: readonly CodecRow[]): string {
  const titles = ['size', 'ratio', 'encode GB/s', 'decode GB/s', 'memcpy GB/s', 'decode/memcpy'];
  const columns = [
    { title: 'tensor', align: 'left' as const },
    { title: 'codec', align: 'left' as const },
    ...titles.map((title) => ({ title, align: 'right' as const })),
  ];
  const cells = rows.map((row) => [
    row.tensor,
    row.codec,
    formatBytes(row.bytes),
    row.ratio.toFixed(4),
    ...[row.encodeBytesPerS, row.decodeBytesPerS, row.memcpyBytesPerS].map((rate) => gigabytes(rate).toFixed(2)),
    `${((100 * row.decodeBytesPerS) / row.memcpyBytesPerS).toFixed(0)} %`,
  ]);
  return `${tableLines(columns, cells).join('\n')}\n`;
}

function codecs(text: string): PackCodec[] {
  return text.split(',').map((name) => {
    const codec = name.trim();
    if (isPackCodec(codec)) return codec;
    throw new InvalidArgumentError(`expected a list of ${PACK_CODECS.join(', ')}`);
  });
}
