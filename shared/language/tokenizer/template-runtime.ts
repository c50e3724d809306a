import * as jinjaPackage from '@huggingface/jinja';
import { JsonFloat } from '../../base/json/exact-json.js';

/** The parts of @huggingface/jinja that are used. The package's own declarations (0.5.11) name modules that TypeScript does not find. */
export interface JinjaValue {
  readonly type: string;
  readonly value: unknown;
  readonly builtins: ReadonlyMap<string, JinjaValue>;
  __bool__(): { value: boolean };
}
export interface JinjaEnvironment {
  /** Converts a JavaScript value to one of the package. */
  set(name: string, value: unknown): JinjaValue;
  setVariable(name: string, value: JinjaValue): void;
}
/** A node of a parsed template. */
export interface JinjaNode {
  readonly type: string;
  readonly [property: string]: unknown;
}
/** A part of a template's source, as the parser expects it. */
export interface JinjaToken {
  readonly type: string;
  readonly value: string;
}
interface JinjaInterpreter {
  run(program: JinjaNode): JinjaValue;
  evaluate(node: JinjaNode | undefined, environment: JinjaEnvironment): JinjaValue | undefined;
  /** The package calls it for each sequence of nodes. */
  evaluateBlock(nodes: readonly JinjaNode[], environment: JinjaEnvironment): JinjaValue;
}
export const jinja = jinjaPackage as unknown as {
  Environment: new () => JinjaEnvironment;
  Interpreter: new (environment: JinjaEnvironment) => JinjaInterpreter;
  tokenize: (source: string, options: { lstrip_blocks: boolean; trim_blocks: boolean }) => JinjaToken[];
  parse: (tokens: readonly JinjaToken[]) => JinjaNode;
};

type ValueClass<Value> = new (value: Value) => JinjaValue & { readonly value: Value };

/** The package does not export the classes of its values, so they are taken from values that it makes. */
function classOf<Value>(sample: Value): ValueClass<Value> {
  return new jinja.Environment().set('sample', sample).constructor as ValueClass<Value>;
}

export const TextValue = classOf<string>('');
export const IntegerValue = classOf<number>(1) as ValueClass<number | bigint>;
export const FloatValue = classOf<number>(0.5);
export const BooleanValue = classOf<boolean>(true);
export const NullValue = classOf<null>(null);
export const UndefinedValue = classOf<undefined>(undefined);
export const ListValue = classOf<unknown>([]) as ValueClass<JinjaValue[]>;
export const ObjectValue = classOf<unknown>({}) as ValueClass<Map<string, JinjaValue>>;

/** Converts a value of the code, or of JSON read without loss (ExactJson), to a value for templates. */
export function jinjaValue(given: unknown): JinjaValue {
  if (given instanceof JsonFloat) return new FloatValue(given.value);
  if (typeof given === 'bigint') return new IntegerValue(given);
  if (typeof given === 'string') return new TextValue(given);
  if (Array.isArray(given)) return new ListValue(given.map(jinjaValue));
  if (typeof given !== 'object' || given === null) return new jinja.Environment().set('given', given);
  const properties = given instanceof Map ? (given as Map<string, unknown>) : new Map(Object.entries(given));
  return new ObjectValue(new Map([...properties].map(([key, value]) => [key, jinjaValue(value)])));
}

/** A node whose value is already known. */
export class KnownNode implements JinjaNode {
  readonly type = 'Known';
  readonly [property: string]: unknown;

  constructor(readonly known: JinjaValue) {}
}
