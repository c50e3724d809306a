import type { CharacterAutomaton } from './character-automaton.js';
import { patternAutomaton, PatternWork } from './pattern-automaton.js';

/** A year of four digits from 0001 on, and the days of each month; 29 February in leap years alone (RFC 3339, section 5.7). */
const LEAP_YEAR = '(?:\\d\\d(?:0[48]|[2468][048]|[13579][26])|(?:0[48]|[2468][048]|[13579][26])00)';
const DATE =
  '(?!0000)(?:\\d{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12]\\d|3[01])|(?:0[469]|11)-(?:0[1-9]|[12]\\d|30)|02-(?:0[1-9]|1\\d|2[0-8]))' +
  `|${LEAP_YEAR}-02-29)`;
const CLOCK = '(?:[01]\\d|2[0-3]):[0-5]\\d';
/** With an offset, as the format demands; microseconds at most, because many readers take no more digits. */
const TIME = `${CLOCK}:[0-5]\\d(?:\\.\\d{1,6})?(?:Z|[+-]${CLOCK})`;
const DURATION_TIME = 'T(?:\\d+H(?:\\d+M(?:\\d+S)?)?|\\d+M(?:\\d+S)?|\\d+S)';
const DURATION_DATE = '(?:\\d+Y(?:\\d+M(?:\\d+D)?)?|\\d+M(?:\\d+D)?|\\d+D)';

/** At most 49 characters, so that five of them are no longer than a host name may be (RFC 1123: 253, and 63 for each). */
const SHORT_LABEL = '[A-Za-z0-9](?:[A-Za-z0-9-]{0,47}[A-Za-z0-9])?';
const LABEL = '[A-Za-z0-9]+(?:-+[A-Za-z0-9]+)*';
const ATOM = "[A-Za-z0-9!#$%&'*+\\/=?^_`{|}~-]+";
const BYTE = '(?:25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)';
const IPV4 = `${BYTE}(?:\\.${BYTE}){3}`;
const HEX = '[0-9A-Fa-f]';
/** Characters of a path, a query and a fragment (RFC 3986, appendix A). */
const PATH_CHARACTER = `(?:[A-Za-z0-9._~!$&'()*+,;=:@\\/-]|%${HEX}{2})`;

/** Formats whose texts are written by their rules. Other formats are annotations, as the standard has it. */
const PATTERNS: ReadonlyMap<string, string> = new Map([
  ['date', DATE],
  ['time', TIME],
  ['date-time', `${DATE}T${TIME}`],
  ['duration', `P(?:\\d+W|${DURATION_DATE}(?:${DURATION_TIME})?|${DURATION_TIME})`],
  ['email', `${ATOM}(?:\\.${ATOM})*@(?:${LABEL}\\.)+[A-Za-z]{2,24}`],
  ['hostname', `${SHORT_LABEL}(?:\\.${SHORT_LABEL}){0,4}`],
  ['ipv4', IPV4],
  ['ipv6', `(?:${HEX}{1,4}:){7}${HEX}{1,4}|(?:${HEX}{1,4}:){1,6}(?::${HEX}{1,4})|::(?:${HEX}{1,4})?`],
  ['uuid', `${HEX}{8}-${HEX}{4}-${HEX}{4}-${HEX}{4}-${HEX}{12}`],
  [
    'uri',
    `[A-Za-z][A-Za-z0-9+.-]*:(?:\\/\\/${LABEL}(?:\\.${LABEL})*(?::\\d{1,5})?(?:\\/${PATH_CHARACTER}*)?|(?!\\/\\/)${PATH_CHARACTER}+)` +
      `(?:\\?(?:${PATH_CHARACTER}|\\?)*)?(?:#(?:${PATH_CHARACTER}|\\?)*)?`,
  ],
]);

/** Automata of the formats that were asked for. */
const automata = new Map<string, CharacterAutomaton>();

/** Accepts the texts of a format of strings; null: the format changes nothing. */
export function formatAutomaton(format: string): CharacterAutomaton | null {
  const pattern = PATTERNS.get(format);
  if (pattern === undefined) return null;
  const automaton =
    automata.get(format) ?? patternAutomaton(`^(?:${pattern})$`, `the format ${format}`, new PatternWork());
  automata.set(format, automaton);
  return automaton;
}

/** True if texts of the format are written by its rules. */
export function isWrittenFormat(format: unknown): boolean {
  return typeof format === 'string' && PATTERNS.has(format);
}
