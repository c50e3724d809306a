import type { Command } from 'commander';
import { join } from 'node:path';
import { tableLines, type TableColumn } from '../../cli/output/table.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import type { MeasuredRun } from '../history/measured-run.js';
import { measureCodes, measureErrors, type CodesRow, type ErrorRow, type PlanesRow } from './measure-slices.js';

type SlicesRow = CodesRow | PlanesRow | ErrorRow;

/** Adds `odmoe bench slices`. */
export function registerBenchSlices(bench: Command, run: MeasuredRun): void {
  bench
    .command('slices')
    .description(
      "what slices make of a checkpoint's experts (SliceMoE): codes, and the error of each variant of table 1",
    )
    .argument('[checkpoint]', 'a checkpoint with BF16 experts', join(packageRoot(), 'models', 'demo'))
    .option('--json', 'one JSON array on stdout, with a field "table" in each row')
    .addHelpText(
      'after',
      `
Variants: symH and asymH are codes of H bits; the others read the upper l bits of codes of h bits: amat(h,l) as the paper does,
centred(h,l) in the middle, asymtrunc(h,l) with the zero as it was, symshift(h,l) and symclip(h,l) from symmetric codes. Errors are
squared errors over squared weights, of the matrices of all experts.

Example:
  odmoe bench slices --json > slices.json`,
    )
    .action(async (checkpoint: string, flags: { json?: boolean }) => {
      const rows: SlicesRow[] = [...(await measureCodes(checkpoint)), ...(await measureErrors(checkpoint))];
      run.print(rows, flags.json === true, () => asTables(rows));
    });
}

function asTables(rows: readonly SlicesRow[]): string {
  const planes = rows.flatMap((row) => (row.table === 'planes' ? [[row.pair, row.sha256_q, row.sha256_z]] : []));
  const errors = rows.flatMap((row) => (row.table === 'mse' ? [[row.variant, row.value.toExponential(3)]] : []));
  const left = (title: string): TableColumn => ({ title, align: 'left' });
  const tables = [
    tableLines([left('pair'), left('SHA-256 of the codes'), left('SHA-256 of the zeros')], planes),
    tableLines([left('variant'), { title: 'error', align: 'right' }], errors),
  ];
  return `${tables.map((lines) => lines.join('\n')).join('\n\n')}\n`;
}
