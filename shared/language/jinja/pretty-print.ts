import { linesOf } from './characters.js';
import { orderOf } from './compare.js';
import { pythonRepr } from './print-python.js';
import { COSTS, type TemplateBudget } from './template-budget.js';
import { Dict, TemplateError, Tuple, typeName, type Value } from './values.js';

/** Python's pprint.pformat, for the filter pprint: long lists and dictionaries have one item on each line, and keys are sorted. */

const WIDTH = 80;

export function prettyText(value: Value, budget: TemplateBudget): string {
  return new PrettyPrinter(budget).written(withSortedKeys(value, budget), 0, 0, 0);
}

function withSortedKeys(value: Value, budget: TemplateBudget): Value {
  budget.spend(COSTS.item);
  budget.enter();
  let result = value;
  if (Array.isArray(value)) result = value.map((item) => withSortedKeys(item, budget));
  else if (value instanceof Tuple) result = new Tuple(value.items.map((item) => withSortedKeys(item, budget)));
  else if (value instanceof Dict) {
    const entries = [...value.items()].sort(([a], [b]) => safeOrder(a, b, budget));
    result = Dict.of(entries.map(([key, item]) => [key, withSortedKeys(item, budget)] as const));
  }
  budget.leave();
  return result;
}

/** Values that have no order are sorted by the names of their types. */
function safeOrder(a: Value, b: Value, budget: TemplateBudget): number {
  try {
    return orderOf(a, b, '<', budget);
  } catch (thrown) {
    if (!(thrown instanceof TemplateError)) throw thrown;
    return typeName(a) < typeName(b) ? -1 : typeName(a) > typeName(b) ? 1 : 0;
  }
}

class PrettyPrinter {
  constructor(private readonly budget: TemplateBudget) {}

  /** `indent`: characters before the value in its line; `allowance`: characters that have to follow it; `level`: of nested values. */
  written(value: Value, indent: number, allowance: number, level: number): string {
    const plain = pythonRepr(value, this.budget);
    if (plain.length <= WIDTH - indent - allowance) return plain;
    if (Array.isArray(value)) return `[${this.items(value, indent, allowance + 1, level)}]`;
    if (value instanceof Tuple) {
      const end = value.items.length === 1 ? ',)' : ')';
      return `(${this.items(value.items, indent, allowance + end.length, level)}${end}`;
    }
    if (value instanceof Dict) return `{${this.entries(value, indent, allowance + 1, level)}}`;
    return typeof value === 'string' ? this.text(value, plain, indent, allowance, level + 1) : plain;
  }

  private items(items: readonly Value[], indent: number, allowance: number, level: number): string {
    const shown = items.map((item, index) =>
      this.written(item, indent + 1, index === items.length - 1 ? allowance : 1, level + 1),
    );
    return this.joined(shown, indent + 1);
  }

  private entries(dict: Dict, indent: number, allowance: number, level: number): string {
    const shown = [...dict.items()].map(([key, value], index) => {
      const name = pythonRepr(key, this.budget);
      const room = index === dict.size - 1 ? allowance : 1;
      return `${name}: ${this.written(value, indent + 1 + name.length + 2, room, level + 1)}`;
    });
    return this.joined(shown, indent + 1);
  }

  private joined(shown: readonly string[], indent: number): string {
    this.budget.spend(shown.length * (indent + 2));
    return shown.join(`,\n${' '.repeat(indent)}`);
  }

  private text(value: string, plain: string, givenIndent: number, givenAllowance: number, level: number): string {
    if (value === '') return plain;
    const isAlone = level === 1;
    const [indent, allowance] = isAlone ? [givenIndent + 1, givenAllowance + 1] : [givenIndent, givenAllowance];
    const lines = linesOf(value, true);
    const chunks = lines.flatMap((line, index) =>
      this.lineChunks(line, WIDTH - indent, index === lines.length - 1 ? allowance : 0),
    );
    if (chunks.length === 1) return chunks[0] ?? plain;
    this.budget.spend(chunks.length * (indent + 1));
    const shown = chunks.join(`\n${' '.repeat(indent)}`);
    return isAlone ? `(${shown})` : shown;
  }

  /** `allowance`: characters that have to follow the last chunk. */
  private lineChunks(line: string, width: number, allowance: number): string[] {
    const whole = pythonRepr(line, this.budget);
    if (whole.length <= width - allowance) return [whole];
    const parts = (line.match(/\S*\s*/gu) ?? []).filter((part) => part !== '');
    const chunks: string[] = [];
    let current = '';
    for (const [index, part] of parts.entries()) {
      const room = index === parts.length - 1 ? width - allowance : width;
      if (pythonRepr(current + part, this.budget).length > room) {
        if (current !== '') chunks.push(pythonRepr(current, this.budget));
        current = part;
      } else current += part;
    }
    if (current !== '') chunks.push(pythonRepr(current, this.budget));
    return chunks;
  }
}
