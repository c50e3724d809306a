/** All settings: one row each. The schema of cluster.yaml, the flags, their types and docs/settings.md follow from the rows. */
import {
  ALIGN_ROWS,
  CLUSTER_ROWS,
  DISCOVERY_ROWS,
  DRAFTING_ROWS,
  EMULATION_ROWS,
  LOG_ROWS,
  NETWORK_ROWS,
  NODE_ROWS,
  PLACEMENT_ROWS,
  PREDICTION_ROWS,
} from './cluster-table.js';
import { BATCHING_ROWS, DEVICE_ROWS, HTTP_ROWS, MAIN_ROWS, SHADOW_ROWS, WORKER_ROWS } from './role-table.js';
import type { RoleSetting } from './setting-choices.js';
import { flagName, type FlagName, type GivenOf, type Setting, type SettingRows, type ValueOf } from './setting.js';

/** In the order of cluster.yaml and --help. Each is a section of cluster.yaml, apart from cluster, node, device and http. */
export const SETTINGS = {
  cluster: CLUSTER_ROWS,
  node: NODE_ROWS,
  discovery: DISCOVERY_ROWS,
  device: DEVICE_ROWS,
  emulation: EMULATION_ROWS,
  prediction: PREDICTION_ROWS,
  align: ALIGN_ROWS,
  drafting: DRAFTING_ROWS,
  placement: PLACEMENT_ROWS,
  shadow: SHADOW_ROWS,
  main: MAIN_ROWS,
  http: HTTP_ROWS,
  batching: BATCHING_ROWS,
  worker: WORKER_ROWS,
  network: NETWORK_ROWS,
  log: LOG_ROWS,
} as const;

export type Settings = typeof SETTINGS;
export type SettingsGroup = keyof Settings;
type AnyRow = { [Group in SettingsGroup]: Settings[Group][keyof Settings[Group]] }[SettingsGroup];

/** Sections of cluster.yaml in its order. */
export const SECTIONS = [
  'discovery',
  'emulation',
  'prediction',
  'align',
  'drafting',
  'placement',
  'shadow',
  'main',
  'batching',
  'worker',
  'network',
  'log',
] as const satisfies SettingsGroup[];
export type SettingsSection = (typeof SECTIONS)[number];

/** Values of the flags, by the names of the flags. For an absent flag, the configuration or the default decides. */
export type DaemonFlags = {
  [Row in Extract<AnyRow, { flag: object }> as FlagName<Row['flag']['usage']>]?: ValueOf<Row>;
};

export function rowsOf(group: SettingsGroup): [name: string, row: Setting][] {
  return Object.entries(SETTINGS[group] satisfies SettingRows);
}

/** The rows that a section of cluster.yaml has. */
export function rowsOfSection(section: SettingsSection): Setting[] {
  const ofDevices = rowsOf('device').filter(([, { inSections = [] }]) => inSections.some((role) => role === section));
  return [...ofDevices.map(([, row]) => row), ...rowsOfSectionAlone(section)];
}

/** The rows that no other section of cluster.yaml has. */
export function rowsOfSectionAlone(section: SettingsSection): Setting[] {
  const rows = [...rowsOf(section), ...(section === 'main' ? rowsOf('http') : [])];
  return rows.map(([, row]) => row);
}

/** The rows that an entry of `nodes` may have. */
export function rowsOfNodes(): Setting[] {
  const rows = (['node', 'cluster', 'device', 'worker'] as const).flatMap((group) => rowsOf(group));
  return rows.map(([, row]) => row).filter(({ inNodes }) => inNodes !== undefined);
}

/** The rows with a flag that this role accepts. */
export function rowsWithFlag(role: RoleSetting): Setting[] {
  const groups = Object.keys(SETTINGS) as SettingsGroup[];
  const rows = groups.flatMap((group) => rowsOf(group)).map(([, row]) => row);
  return rows.filter(({ flag }) => flag?.roles[role] !== undefined);
}

/** Values as users give them: by key of cluster.yaml or by name of a flag. */
export type Values = Readonly<Record<string, unknown>>;

/** The sources of values. */
export interface GivenValues {
  flags: Values;
  /** The node's entry under `nodes`. */
  entry: Values;
  /** A section of cluster.yaml. */
  section(group: SettingsGroup): Values;
}

/** The values of all rows: from the flag, else the node's entry, else the section, else the default. */
export function valuesOfRows(given: GivenValues): { [Group in SettingsGroup]: GivenOf<Settings[Group]> } {
  const groups = Object.keys(SETTINGS) as SettingsGroup[];
  const values = groups.map((group) => [
    group,
    Object.fromEntries(rowsOf(group).map(([name, row]) => [name, valueOfRow(row, given, given.section(group))])),
  ]);
  return Object.fromEntries(values) as { [Group in SettingsGroup]: GivenOf<Settings[Group]> };
}

function valueOfRow({ key, flag, inNodes, default: otherwise }: Setting, given: GivenValues, section: Values): unknown {
  const flagged = flag === undefined ? undefined : given.flags[flagName(flag.usage)];
  if (flagged !== undefined || key === null) return flagged ?? otherwise;
  return (inNodes === undefined ? undefined : given.entry[key]) ?? section[key] ?? otherwise;
}

/** The first flag of a group that this role accepts and that is given, as users write it; null: none is. */
export function firstGivenFlag(group: SettingsGroup, role: RoleSetting, flags: Values): string | null {
  for (const [, { flag }] of rowsOf(group)) {
    if (flag?.roles[role] === undefined || flags[flagName(flag.usage)] === undefined) continue;
    return flag.usage.split(' ')[0] ?? null;
  }
  return null;
}
