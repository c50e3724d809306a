/** One row of the settings table, and the types that follow from rows. */
import type { RoleSetting } from './setting-choices.js';
import type { ValueKind } from './value-kinds.js';

/** One setting. Its name in the table is its name in NodeSettings. */
export interface Setting {
  /** Key in its section of cluster.yaml. Null: only a flag sets it. */
  readonly key: string | null;
  readonly kind: ValueKind<unknown>;
  /** Null: none. Undefined: it depends on other settings, so resolve-node-settings.ts decides. */
  readonly default: unknown;
  /** The file must give it where its section is given. */
  readonly required?: true;
  /** Sentences about it, for cluster.yaml and docs/settings.md. */
  readonly help: string;
  /** Value in the example of cluster.yaml; otherwise the default. */
  readonly shown?: string;
  /** An entry of `nodes` may have it, too: its description there. */
  readonly inNodes?: string;
  /** Values that the seeds of `odmoe bench faults` draw, each as often as it stands here. Absent: the seeds leave the default, or draw it by a rule. */
  readonly drawn?: readonly unknown[];
  /** The value with which the least happens: a seed that fails is tried with it. Absent: the default. */
  readonly simplest?: unknown;
  /** Sections of roles that have it; only in the table of devices. */
  readonly inSections?: readonly RoleSetting[];
  /** `usage`: the flag as --help shows it. `roles`: the roles that accept it, with its description for each. */
  readonly flag?: { readonly usage: string; readonly roles: Readonly<Partial<Record<RoleSetting, string>>> };
}

export type SettingRows = Readonly<Record<string, Setting>>;

export function forEveryRole(help: string): Record<RoleSetting, string> {
  return { main: help, shadow: help, worker: help };
}

/** The help of a worker's flag that main accepts for its own worker. */
export function forLoading(help: string): Pick<Record<RoleSetting, string>, 'main' | 'worker'> {
  return { main: `main's own worker: ${help}`, worker: help };
}

/** The name of a flag's value: streamKv of "--no-stream-kv", maxRows of "--max-rows <count>". */
export function flagName(usage: string): string {
  const word = /^--(?:no-)?([a-z-]+)/.exec(usage)?.[1] ?? '';
  return word.replaceAll(/-([a-z])/g, (_, letter: string) => letter.toUpperCase());
}

/** As flagName, in types. */
export type FlagName<Usage extends string> = Usage extends `--no-${infer Rest}`
  ? CamelCase<FirstWord<Rest>>
  : Usage extends `--${infer Rest}`
    ? CamelCase<FirstWord<Rest>>
    : never;
type FirstWord<Text extends string> = Text extends `${infer Word} ${string}` ? Word : Text;
type CamelCase<Text extends string> = Text extends `${infer Head}-${infer Tail}`
  ? `${Head}${Capitalize<CamelCase<Tail>>}`
  : Text;

export type ValueOf<Row extends Setting> = Row['kind'] extends ValueKind<infer Value> ? Value : never;

/** The rows' values once all settings are resolved. */
export type SettingsOf<Rows extends SettingRows> = {
  -readonly [Name in keyof Rows]: Rows[Name]['default'] extends null ? ValueOf<Rows[Name]> | null : ValueOf<Rows[Name]>;
};

/** The rows' values from flags, the file and defaults. Undefined: they say nothing, and the default depends on other settings. */
export type GivenOf<Rows extends SettingRows> = {
  -readonly [Name in keyof Rows]: ValueOf<Rows[Name]> | Extract<Rows[Name]['default'], null | undefined>;
};

type IsOptional<Row extends Setting> = Row extends { required: true }
  ? false
  : Row['default'] extends null | undefined
    ? true
    : false;

/** The rows' values in a parsed section of cluster.yaml. */
export type SectionOf<Rows extends SettingRows> = {
  -readonly [
    Name in keyof Rows as IsOptional<Rows[Name]> extends true ? never : NonNullable<Rows[Name]['key']>
  ]: ValueOf<Rows[Name]>;
} & {
  -readonly [Name in keyof Rows as IsOptional<Rows[Name]> extends true ? NonNullable<Rows[Name]['key']> : never]?:
    | ValueOf<Rows[Name]>
    | undefined;
};

/** The rows that an entry of `nodes` may or must have, as they stand there. */
export type EntryOf<Rows extends SettingRows> = {
  -readonly [
    Name in keyof Rows as Rows[Name] extends { inNodes: string; required: true }
      ? NonNullable<Rows[Name]['key']>
      : never
  ]: ValueOf<Rows[Name]>;
} & {
  -readonly [
    Name in keyof Rows as Rows[Name] extends { inNodes: string; required: true }
      ? never
      : Rows[Name] extends { inNodes: string }
        ? NonNullable<Rows[Name]['key']>
        : never
  ]?: ValueOf<Rows[Name]> | undefined;
};

/** The rows of the table of devices that the section of a role has. */
export type RowsInSection<Rows extends SettingRows, Role extends RoleSetting> = {
  -readonly [
    Name in keyof Rows as Rows[Name] extends { inSections: readonly (infer Sections)[] }
      ? Role extends Sections
        ? Name
        : never
      : never
  ]: Rows[Name];
};
