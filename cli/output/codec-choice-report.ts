import type { MeasuredChoice } from '../../packs/packing/measure-codecs.js';
import { describeCodec } from '../../packs/format/pack-codec.js';
import { tableLines } from './table.js';
import { formatBytes } from '../../shared/base/text/units.js';

/** The measurements of `odmoe pack --codec auto`, its choice and the reason. */
export function codecChoiceLines(choice: MeasuredChoice): string[] {
  const { machine, estimates, chosen } = choice;
  const perSecond = (bytesPerS: number): string => `${(bytesPerS / 1e9).toFixed(2)} GB/s`;
  const table = tableLines(
    [
      { title: 'codec', align: 'left' },
      { title: 'size', align: 'right' },
      { title: 'packs', align: 'right' },
      { title: 'decodes', align: 'right' },
      { title: 'read', align: 'right' },
      { title: 'decompress', align: 'right' },
      { title: 'load', align: 'right' },
    ],
    estimates.map((estimate) => [
      describeCodec(estimate),
      `${(estimate.ratio * 100).toFixed(1)} %`,
      estimate.codec === 'raw' ? '-' : perSecond(estimate.encodeBytesPerS),
      perSecond(estimate.decodeBytesPerS),
      ...[estimate.readMs, estimate.decompressMs, estimate.loadMs].map((ms) => `${ms.toFixed(1)} ms`),
    ]),
  );
  const threads = `${machine.decompressionThreads} ${machine.decompressionThreads === 1 ? 'thread' : 'threads'}`;
  return [
    `measured on ${formatBytes(choice.sampledBytes)} of the experts; packs, decodes: one core; read, decompress, load: one expert of ` +
      `${formatBytes(choice.expertBytes)}, from storage at ${perSecond(machine.storageBytesPerS)}, decompressed on ${threads}`,
    ...table.map((line) => `  ${line}`),
    ...(choice.storageDirect
      ? []
      : [
          '  the file system allows no direct reading: the speed of storage may be that of the page cache, which is faster',
        ]),
    `chose ${describeCodec(chosen)}: ${choice.reason}`,
  ];
}

/** The same data for --json, with keys still in camel case. */
export function codecChoiceObject(choice: MeasuredChoice): Record<string, unknown> {
  const { chosen, estimates, reason, ...measured } = choice;
  return { codec: chosen.codec, level: chosen.level, reason, ...measured, estimates };
}
