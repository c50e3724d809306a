import { join } from 'node:path';
import { InvalidArgumentError, type Command } from 'commander';
import { tableLines } from '../../cli/output/table.js';
import { packageRoot } from '../../shared/base/files/package-root.js';
import { snakeCaseKeys } from '../../shared/base/json/snake-case.js';
import { FIGURES, type Figure, type FigureCell, type FigureResult } from './figure-cells.js';
import { measureFigure } from './figures.js';
import { loadServerProfile } from './server-profile.js';
import type { MeasuredRun } from '../history/measured-run.js';

interface FluxmoeFlags {
  only: Figure[];
  profile: string;
  json: boolean;
}

export const SERVER_PROFILE = join(packageRoot(), 'bench', 'profiles', 'l40-fluxmoe.yaml');

/** `odmoe bench fluxmoe`: measures FluxMoE's figures on its emulated testbed and compares them with the paper's. */
export function registerBenchFluxmoe(bench: Command, run: MeasuredRun): void {
  bench
    .command('fluxmoe')
    .description("FluxMoE's figures on its emulated testbed (four L40), beside the paper's")
    .option('--only <figures>', `some of ${FIGURES.join(',')}`, parseFigures, [...FIGURES])
    .option('--profile <file>', 'the server and its models', SERVER_PROFILE)
    .option('--json', 'print one JSON object', false)
    .addHelpText(
      'after',
      '\nEmulated: the residency code of odmoe (planner, division of layers, window) runs on emulated links and cards, on a virtual\n' +
        'clock. Figures are the same on every machine; docs/testbed.md says what is calibrated.\n' +
        '\nExamples:\n  odmoe bench fluxmoe\n  odmoe bench fluxmoe --only figure7,figure9 --json\n',
    )
    .action(async (flags: FluxmoeFlags) => {
      const profile = loadServerProfile(flags.profile);
      const result: FigureResult = { cells: [], orders: [] };
      for (const figure of flags.only) {
        const { cells, orders } = await measureFigure(figure, profile);
        result.cells.push(...cells);
        result.orders.push(...orders);
      }
      const figures = snakeCaseKeys({ emulated: profile.name, ...result });
      run.print(figures, flags.json, () => `${fluxmoeReportText(result, profile.name)}\n`);
    });
}

/** Tables for people. */
export function fluxmoeReportText({ cells, orders }: FigureResult, profile: string): string {
  const columns = [
    { title: 'figure', align: 'left' as const },
    { title: 'what', align: 'left' as const },
    ...['unit', 'paper', 'emulated', 'difference'].map((title) => ({ title, align: 'right' as const })),
  ];
  const rows = cells.map((cell) => [
    cell.figure,
    cell.what,
    cell.unit,
    numberText(cell.paper),
    numberText(cell.ours),
    difference(cell),
  ]);
  const orderColumns = ['figure', 'order', 'holds'].map((title) => ({ title, align: 'left' as const }));
  const orderRows = orders.map(({ figure, what, holds }) => [figure, what, holds ? 'yes' : 'NO']);
  const sections = [tableLines(columns, rows)];
  if (orders.length > 0) sections.push(tableLines(orderColumns, orderRows));
  sections.push([`(emulated: ${profile}, on a virtual clock; *: the profile was fitted to this cell)`]);
  return sections.map((lines) => lines.join('\n')).join('\n\n');
}

function difference({ paper, ours, calibrated }: FigureCell): string {
  if (paper === null) return '';
  const percent = (ours / paper - 1) * 100;
  return `${percent < 0 ? '' : '+'}${percent.toFixed(1)} %${calibrated ? ' *' : ''}`;
}

function numberText(value: number | null): string {
  if (value === null) return '';
  return value.toFixed(Math.abs(value) >= 100 ? 0 : Math.abs(value) >= 10 ? 1 : 3);
}

function parseFigures(value: string): Figure[] {
  return value.split(',').map((name) => {
    const figure = FIGURES.find((known) => known === name.trim());
    if (figure === undefined)
      throw new InvalidArgumentError(`It must be some of ${FIGURES.join(', ')}, separated by commas.`);
    return figure;
  });
}
