import { isDeepStrictEqual } from 'node:util';
import type { SeededRandom } from '../../shared/base/runtime/seeded-random.js';
import type { NodeSettings } from '../../shared/settings/node-settings.js';
import { rowsOf } from '../../shared/settings/settings-table.js';

/** Groups that main decides for all nodes. */
export const CLUSTER_GROUPS = ['align', 'batching', 'drafting', 'placement', 'prediction'] as const;
/** Groups of settings whose rows say what the seeds draw. */
const DRAWN_GROUPS = [...CLUSTER_GROUPS, 'main', 'shadow', 'worker'] as const;
type DrawnGroup = (typeof DRAWN_GROUPS)[number];

/**
 * The settings of a group with those values drawn that the rows list. Each row has a stream of numbers of its own, so that a new row does not
 * change what is drawn for the others.
 */
export function drawRows<Group extends DrawnGroup>(
  random: SeededRandom,
  group: Group,
  settings: NodeSettings[Group],
): NodeSettings[Group] {
  const drawn = rowsOf(group).flatMap(([name, { drawn: values }]) =>
    values === undefined ? [] : [[name, random.fork(`${group}.${name}`).pick(values)] as const],
  );
  return { ...settings, ...Object.fromEntries(drawn) };
}

/** The values that the rows list, by "group.name". */
export function drawableOfRows(): Record<string, readonly (string | number)[]> {
  const entries = DRAWN_GROUPS.flatMap((group) =>
    rowsOf(group).flatMap(([name, { drawn }]) => (drawn === undefined ? [] : [[`${group}.${name}`, drawn] as const])),
  );
  return Object.fromEntries(entries.map(([name, values]) => [name, [...new Set(values.map((value) => shown(value)))]]));
}

/** The drawn values of one node, by "group.name": those of its role; main has those of the whole cluster, too. */
export function drawnOfRows(settings: NodeSettings): [name: string, value: string | number][] {
  const { role } = settings;
  const groups = DRAWN_GROUPS.filter((group) =>
    group === 'main' || group === 'shadow' || group === 'worker' ? group === role : role === 'main',
  );
  return groups.flatMap((group) => {
    const values: Readonly<Record<string, unknown>> = { ...settings[group] };
    return rowsOf(group).flatMap(([name, { drawn }]) =>
      drawn === undefined ? [] : [[`${group}.${name}`, shown(values[name])] as [string, string | number]],
    );
  });
}

/** Changes that make settings simpler: all rows of a group together, then each row by itself. */
export function simplerSettings(): ((settings: NodeSettings) => NodeSettings)[] {
  return DRAWN_GROUPS.flatMap((group) => {
    const rows = rowsOf(group).flatMap(([name, { simplest, default: otherwise }]) => {
      const value = simplest === undefined ? otherwise : simplest;
      return value === undefined ? [] : [[name, value] as const];
    });
    const changes = [rows, ...rows.map((row) => [row])];
    return changes.map((change) => (settings: NodeSettings): NodeSettings => {
      const simpler = { ...settings[group], ...Object.fromEntries(change) };
      return { ...settings, [group]: simpler };
    });
  });
}

/** The values of these groups that are not the default, by "group.name". */
export function unusualRows(settings: NodeSettings, groups: readonly DrawnGroup[]): [name: string, value: unknown][] {
  return groups.flatMap((group) => {
    const values: Readonly<Record<string, unknown>> = { ...settings[group] };
    const rows = rowsOf(group).filter(([name, row]) => !isDeepStrictEqual(values[name], row.default));
    return rows.map(([name]): [string, unknown] => [`${group}.${name}`, values[name]]);
  });
}

function shown(value: unknown): string | number {
  return typeof value === 'number' ? value : String(value);
}
