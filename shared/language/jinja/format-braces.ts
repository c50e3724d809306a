import type { TemplateContext } from './context.js';
import { asciiText } from './format-percent.js';
import { formatted } from './format-specification.js';
import { pythonRepr, pythonText, Writer } from './print-python.js';
import { type Given, TemplateError, type Value } from './values.js';

/** Levels of fields within the specifications of fields. */
const DEPTH_LIMIT = 2;

/** Python's text.format(...). Throws TemplateError if the arguments do not suit the text. */
export function bracesFormatted(text: string, given: Given, context: TemplateContext): string {
  return new BracesFormat(given, context).written(text, DEPTH_LIMIT);
}

class BracesFormat {
  /** Place of the next argument without a name; null: the fields have numbers. */
  private place: number | null = 0;

  constructor(
    private readonly given: Given,
    private readonly context: TemplateContext,
  ) {}

  written(text: string, depth: number): string {
    if (depth < 0) throw new TemplateError('Max string recursion exceeded');
    const written = new Writer(this.context.budget);
    this.context.budget.read(text.length);
    let at = 0;
    while (at < text.length) {
      const brace = nextBrace(text, at);
      written.add(text.slice(at, brace));
      if (brace >= text.length) break;
      if (text[brace + 1] === text[brace]) {
        written.add(text.slice(brace, brace + 1));
        at = brace + 2;
        continue;
      }
      if (text[brace] === '}') throw new TemplateError("Single '}' encountered in format string");
      const end = closingBrace(text, brace);
      written.add(this.field(text.slice(brace + 1, end), depth));
      at = end + 1;
    }
    return written.whole();
  }

  private field(field: string, depth: number): string {
    const { budget } = this.context;
    const [, path = '', conversion, specification] =
      /^((?:\[[^\]]*\]|[^!:[])*)(?:!([^:]*))?(?::([^]*))?$/.exec(field) ?? [];
    if (path === '' && conversion === undefined && specification === undefined && field !== '') {
      throw new TemplateError(`the field {${field}} is malformed`);
    }
    const value = this.valueOf(path);
    const inner = specification === undefined ? '' : this.written(specification, depth - 1);
    switch (conversion) {
      case undefined:
        return formatted(value, inner, budget);
      case 's':
        return formatted(pythonText(value, budget), inner, budget);
      case 'r':
        return formatted(pythonRepr(value, budget), inner, budget);
      case 'a':
        return formatted(asciiText(pythonRepr(value, budget)), inner, budget);
      default:
        throw new TemplateError(`Unknown conversion specifier ${conversion}`);
    }
  }

  private valueOf(path: string): Value {
    const [first = ''] = /^[^.[]*/.exec(path) ?? [];
    if (first === '' && path !== '') throw new TemplateError(`the field {${path}} names no argument`);
    let value = this.argument(first);
    let rest = path.slice(first.length);
    while (rest !== '') {
      const part = /^(?:\.([^.[]+)|\[([^\]]+)\])/.exec(rest);
      if (part === null) throw new TemplateError(`the field {${path}} is malformed`);
      const [whole, name, place] = part;
      rest = rest.slice(whole.length);
      if (name !== undefined) value = this.context.attribute(value, name);
      else if (place !== undefined) value = this.context.item(value, /^\d+$/.test(place) ? Number(place) : place);
    }
    return value;
  }

  private argument(name: string): Value {
    const isNumber = /^\d+$/.test(name);
    if (name !== '' && !isNumber) {
      const named = this.given.named.get(name);
      if (named === undefined) throw new TemplateError(`the format names ${name}, which is not given`);
      return named;
    }
    const isNumbered = this.place === null;
    if (name === '' ? isNumbered : !isNumbered && this.place !== 0) {
      throw new TemplateError('cannot switch between automatic and manual field numbering');
    }
    const place = name === '' ? (this.place ?? 0) : Number(name);
    this.place = name === '' ? place + 1 : null;
    const value = this.given.positional[place];
    if (value === undefined)
      throw new TemplateError(`Replacement index ${place} out of range for positional args tuple`);
    return value;
  }
}

function nextBrace(text: string, at: number): number {
  for (let place = at; place < text.length; place += 1) if (text[place] === '{' || text[place] === '}') return place;
  return text.length;
}

function closingBrace(text: string, opening: number): number {
  let depth = 0;
  for (let at = opening; at < text.length; at += 1) {
    if (text[at] === '{') depth += 1;
    else if (text[at] === '}') depth -= 1;
    if (depth === 0) return at;
  }
  throw new TemplateError("expected '}' before end of string");
}
