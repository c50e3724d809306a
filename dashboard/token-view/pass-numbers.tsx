import type { JSX } from 'preact';
import { formatShare, NOTHING } from '../format/quantities.js';
import { milliseconds } from './bar-texts.js';
import {
  figureDifferences,
  FIGURE_NAMES,
  type FigureDifference,
  type LayerFigures,
  type PassFigures,
} from './pass-figures.js';

const FIGURE_WORDS: Record<keyof LayerFigures, string> = {
  attentionMs: 'attention',
  waitMs: 'wait',
  stallMs: 'of it load',
  executeMs: 'of it execute',
  otherMs: 'of it other',
  sumMs: 'sum',
};

/** Time and loads of the pass. */
export function PassNumbers({ figures }: { figures: PassFigures }): JSX.Element {
  const { total, durationMs, rows, experts, loads, reloads, recall } = figures;
  const numbers: [string, string][] = [
    ['time', milliseconds(durationMs)],
    ['attention', milliseconds(total.attentionMs)],
    ['wait for experts', milliseconds(total.waitMs)],
    ['of it for loads', milliseconds(total.stallMs)],
    ['rows', String(rows)],
    ['experts', String(experts)],
    ['loads', String(loads)],
    ['reloads', String(reloads)],
    ['predicted in time', recall === null ? NOTHING : formatShare(recall)],
  ];
  return (
    <dl class="pass-numbers">
      {numbers.map(([name, value]) => (
        <div key={name}>
          <dt class="small quiet">{name}</dt>
          <dd class="number">{value}</dd>
        </div>
      ))}
    </dl>
  );
}

/** A row for each layer, and one for all layers together. */
export function FiguresTable({ figures }: { figures: PassFigures }): JSX.Element {
  const rows = [{ name: 'all', figures: figures.total }].concat(
    figures.layers.map((layer, index) => ({ name: String(index), figures: layer })),
  );
  return (
    <div class="table-scroll">
      <table class="figures-table">
        <caption class="small quiet">Milliseconds, layer by layer</caption>
        <Head />
        <tbody>
          {rows.map(({ name, figures: layer }) => (
            <tr key={name}>
              <th scope="row">{name}</th>
              {FIGURE_NAMES.map((figure) => (
                <td key={figure}>{layer[figure].toFixed(2)}</td>
              ))}
            </tr>
          ))}
        </tbody>
      </table>
    </div>
  );
}

/** The extra time of the second pass against the first (negative: it was faster). */
export function DifferencesTable({ first, second }: { first: PassFigures; second: PassFigures }): JSX.Element {
  return (
    <div class="table-scroll">
      <table class="figures-table">
        <caption class="small quiet">
          Milliseconds of the shown pass, and in brackets how much more or less the one below it took
        </caption>
        <Head />
        <tbody>
          {figureDifferences(first, second).map((row) => (
            <DifferenceRow key={row.layer} row={row} />
          ))}
        </tbody>
      </table>
    </div>
  );
}

function DifferenceRow({ row }: { row: FigureDifference }): JSX.Element {
  return (
    <tr>
      <th scope="row">{row.layer ?? 'all'}</th>
      {FIGURE_NAMES.map((figure) => (
        <td key={figure}>
          {row.first[figure].toFixed(2)} <Difference ms={row.difference[figure]} />
        </td>
      ))}
    </tr>
  );
}

/** Least difference that is shown, in ms; smaller ones do not matter. */
const NOTICEABLE_MS = 0.05;

function Difference({ ms }: { ms: number }): JSX.Element {
  if (Math.abs(ms) < NOTICEABLE_MS) return <span class="difference" />;
  const isSlower = ms > 0;
  return (
    <span class={`difference difference-${isSlower ? 'slower' : 'faster'}`}>
      ({isSlower ? '+' : '−'}
      {Math.abs(ms).toFixed(2)})
    </span>
  );
}

function Head(): JSX.Element {
  return (
    <thead>
      <tr>
        <th scope="col">layer</th>
        {FIGURE_NAMES.map((figure) => (
          <th key={figure} scope="col">
            {FIGURE_WORDS[figure]}
          </th>
        ))}
      </tr>
    </thead>
  );
}
