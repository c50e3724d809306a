import { COSTS } from './template-budget.js';

/** Python's strftime. */

/** A directive has two characters, is replaced by at most nine, and is found one by one. */
export const DATE_GROWTH = COSTS.listedCharacter;

const MONTHS = [
  'January',
  'February',
  'March',
  'April',
  'May',
  'June',
  'July',
  'August',
  'September',
  'October',
  'November',
  'December',
];
const WEEKDAYS = ['Sunday', 'Monday', 'Tuesday', 'Wednesday', 'Thursday', 'Friday', 'Saturday'];

/** Python's strftime, in English and local time, for the directives of dates and times; other directives stay as they are. */
export function dateText(wallMs: number, format: string): string {
  const date = new Date(wallMs);
  const two = (value: number): string => String(value).padStart(2, '0');
  const hour = date.getHours() % 12 || 12;
  const weekday = WEEKDAYS[date.getDay()] ?? '';
  const month = MONTHS[date.getMonth()] ?? '';
  const directives: Readonly<Record<string, string>> = {
    Y: String(date.getFullYear()),
    y: two(date.getFullYear() % 100),
    m: two(date.getMonth() + 1),
    B: month,
    b: month.slice(0, 3),
    A: weekday,
    a: weekday.slice(0, 3),
    d: two(date.getDate()),
    H: two(date.getHours()),
    I: two(hour),
    p: date.getHours() < 12 ? 'AM' : 'PM',
    M: two(date.getMinutes()),
    S: two(date.getSeconds()),
    '-d': String(date.getDate()),
    '-m': String(date.getMonth() + 1),
    '-I': String(hour),
    '-H': String(date.getHours()),
    '%': '%',
  };
  return format.replace(/%(-?[A-Za-z]|%)/g, (whole, directive: string) => directives[directive] ?? whole);
}
