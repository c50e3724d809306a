import { Option } from 'commander';
import type { Setting } from '../../shared/settings/setting.js';

/**
 * A setting of the daemons as a flag of a command: name, allowed values and default come from the settings table. `value`: how --help shows the
 * value; empty: the flag has none. `help`: what the flag means for this command.
 */
export function settingFlag({ key, kind, flag, default: otherwise }: Setting, value: string, help: string): Option {
  const name = flag?.usage.split(' ')[0] ?? `--${(key ?? '').replaceAll('_', '-')}`;
  const option = new Option(value === '' ? name : `${name} ${value}`, help);
  if (option.negate) return option;
  option.default(otherwise ?? undefined);
  if (kind.choices !== undefined) return option.choices(kind.choices);
  return option.isBoolean() || kind.parseFlag === undefined ? option : option.argParser(kind.parseFlag);
}
