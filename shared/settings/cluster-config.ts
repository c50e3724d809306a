/** The contents of cluster.yaml: the schema and the types that follow from the settings table. */
import { z } from 'zod';
import type { RoleSetting } from './setting-choices.js';
import type { EntryOf, RowsInSection, SectionOf, Setting } from './setting.js';
import { rowsOf, rowsOfNodes, rowsOfSection, SECTIONS, type Settings, type SettingsSection } from './settings-table.js';

/** cluster.yaml, parsed and checked. Relative model paths start at `directory`. */
export type ClusterConfig = ParsedSections & {
  readonly path: string | null;
  readonly nodes: readonly ConfiguredNode[];
};

type ParsedSections = SectionOf<Settings['cluster']> & {
  [Section in Exclude<SettingsSection, 'emulation'>]: SectionOf<Settings[Section]>;
} & { [Role in RoleSetting]: SectionOf<RowsInSection<Settings['device'], Role>> } & {
  main: SectionOf<Settings['http']>;
  emulation?: SectionOf<Settings['emulation']> | undefined;
};

export type NodeEntry = EntryOf<Settings['node']> &
  EntryOf<Settings['cluster']> &
  EntryOf<Settings['device']> &
  EntryOf<Settings['worker']>;

const nodeSchema = keysSchema(rowsOfNodes(), ({ kind, required }) =>
  required === true ? kind.schema : kind.schema.optional(),
);

/** In the order of SECTIONS, with nodes after discovery. The types are those of the rows, because every schema here is made from the rows. */
export const clusterConfigSchema = z.strictObject({
  ...keysSchema(rowsOf('cluster').map(([, row]) => row)).shape,
  discovery: sectionSchema('discovery'),
  nodes: z.array(nodeSchema, { error: 'a list of nodes' }).max(1024).default([]),
  ...Object.fromEntries(SECTIONS.slice(1).map((section) => [section, sectionSchema(section)])),
}) as unknown as z.ZodType<ParsedSections & { nodes: NodeEntry[] }>;

function sectionSchema(section: SettingsSection): z.ZodType {
  const schema = keysSchema(rowsOfSection(section));
  return section === 'emulation' ? schema.optional() : schema.prefault({});
}

function keysSchema(rows: readonly Setting[], schemaOf = withDefault): z.ZodObject {
  return z.strictObject(
    Object.fromEntries(rows.flatMap((row) => (row.key === null ? [] : [[row.key, schemaOf(row)]]))),
  );
}

function withDefault({ kind, required, default: otherwise }: Setting): z.ZodType {
  if (required === true) return kind.schema;
  return otherwise === null || otherwise === undefined ? kind.schema.optional() : kind.schema.default(otherwise);
}

/** A node of the list, with its address filled in. */
export type ConfiguredNode = NodeEntry & {
  readonly address: { host: string; port: number };
  readonly hostGiven: boolean;
};

const DEFAULT_PORTS = { main: 7600, shadow: 7601, worker: 7602 } as const;

export function defaultPort(role: NodeEntry['role']): number {
  return DEFAULT_PORTS[role];
}

/** Gives each node its address. The port is the default of its role; a further worker on a host gets the next free port. */
export function addressNodes(entries: readonly NodeEntry[]): ConfiguredNode[] {
  const taken = new Set(entries.map((entry) => `${entry.host ?? 'localhost'}:${entry.port ?? ''}`));
  return entries.map((entry) => {
    const nodeHost = entry.host ?? 'localhost';
    let nodePort = entry.port ?? defaultPort(entry.role);
    while (entry.port === undefined && taken.has(`${nodeHost}:${nodePort}`)) nodePort += 1;
    taken.add(`${nodeHost}:${nodePort}`);
    return { ...entry, address: { host: nodeHost, port: nodePort }, hostGiven: entry.host !== undefined };
  });
}
