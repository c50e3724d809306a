import { readFileSync, realpathSync } from 'node:fs';
import { join, resolve } from 'node:path';
import { LineCounter, isMap, isScalar, parseDocument, type Document } from 'yaml';
import type { z } from 'zod';
import { OdmoeError, toOdmoeError } from '../base/errors/odmoe-error.js';
import { addressNodes, clusterConfigSchema, type ClusterConfig } from './cluster-config.js';
import { findContradictions } from './config-contradictions.js';
import { nearestKey } from '../base/text/nearest-key.js';
import { WHOLE_SENTENCE } from './value-kinds.js';
import { syntaxFault } from './yaml-faults.js';

/** Most faults that one message shows. */
const FAULTS_SHOWN_LIMIT = 20;

type Path = readonly (string | number)[];

interface Fault {
  path: Path;
  message: string;
  /** The fault is in the key itself, not in its value. */
  atKey: boolean;
}

/** Reads and checks cluster.yaml. Throws CONFIG_INVALID with file, line, column, key and the expected value. `root`: the directory of the system that has the path. */
export function loadClusterConfig(path: string, root = '/'): ClusterConfig {
  let source: string;
  try {
    source = readFileSync(root === '/' ? path : pathBelow(root, path), 'utf8');
  } catch (thrown) {
    const reason = toOdmoeError(thrown).message;
    const where = root === '/' ? '' : ` of the system in ${root}`;
    throw new OdmoeError('CONFIG_INVALID', `cannot read the configuration ${path}${where}: ${reason}`, {
      cause: thrown,
    });
  }
  return parseClusterConfig(source, path);
}

/** The file of another system. Throws CONFIG_INVALID where a link leads out of that, as an absolute one does, and what realpath throws. */
function pathBelow(root: string, path: string): string {
  const found = realpathSync(join(root, path));
  if (found.startsWith(join(realpathSync(root), '/'))) return found;
  throw new OdmoeError('CONFIG_INVALID', `a link leads to ${found}, which is not of that system: name the file itself`);
}

/** As loadClusterConfig, from text. An empty document gives the defaults. */
export function parseClusterConfig(source: string, path: string): ClusterConfig {
  const lines = new LineCounter();
  const document = parseDocument(source, { lineCounter: lines, prettyErrors: false, uniqueKeys: true });
  const fault = syntaxFault(document.errors, source);
  if (fault !== null) throw invalid([`${place(path, lines, fault.offset)}: ${fault.message}`]);
  const parsed = clusterConfigSchema.safeParse(withoutEmptySections(plain(document, path)));
  if (!parsed.success) {
    throw invalid(parsed.error.issues.flatMap(faultsOfIssue).map((fault) => tell(fault, document, lines, path)));
  }
  const config = { ...parsed.data, path: resolve(path), nodes: addressNodes(parsed.data.nodes) };
  const contradictions = findContradictions(config);
  if (contradictions.length > 0) {
    throw invalid(contradictions.map((fault) => tell({ ...fault, atKey: false }, document, lines, path)));
  }
  return config;
}

/** The configuration if no file is given. */
export function defaultClusterConfig(): ClusterConfig {
  return { ...clusterConfigSchema.parse({}), path: null, nodes: [] };
}

function plain(document: Document, path: string): unknown {
  try {
    // Aliases are bounded, so that a small file cannot expand into a large value.
    return document.toJS({ maxAliasCount: 100 }) ?? {};
  } catch (thrown) {
    const { message } = toOdmoeError(thrown);
    throw invalid([`${path}:1:1: ${message}; write the values out in place of aliases (*name)`]);
  }
}

/** A section in which every line is commented out is read as null; it stands for its defaults. */
function withoutEmptySections(root: unknown): unknown {
  if (typeof root !== 'object' || root === null || Array.isArray(root)) return root;
  return Object.fromEntries(Object.entries(root).filter(([, value]) => value !== null));
}

function faultsOfIssue(issue: z.core.$ZodIssue): Fault[] {
  const path = issue.path.map((step) => (typeof step === 'number' ? step : String(step)));
  if (issue.code !== 'unrecognized_keys') return [{ path, message: expectation(issue, path), atKey: false }];
  const known = knownKeys(path);
  return issue.keys.map((key) => {
    const nearest = nearestKey(key, known);
    const advice = nearest === null ? `the keys here are ${known.join(', ')}` : `did you mean "${nearest}"?`;
    return { path: [...path, key], message: `unknown key; ${advice}`, atKey: true };
  });
}

function expectation(issue: z.core.$ZodIssue, path: Path): string {
  if (issue.code === 'too_big' && issue.origin === 'array') return 'expected at most 1024 entries';
  if (path.length === 0) return 'expected a mapping of keys to values';
  if (issue.message.startsWith('Invalid input'))
    return `expected ${issue.message.replace(/^Invalid input: expected /, '')}`;
  if (issue.code === 'custom' && issue.params === WHOLE_SENTENCE) return issue.message;
  return `expected ${issue.message}`;
}

/** Keys that the schema has at a path. They are read from the schema itself, so the two cannot differ. */
function knownKeys(path: Path): string[] {
  let schema: unknown = clusterConfigSchema;
  for (const step of path) schema = typeof step === 'number' ? elementOf(schema) : shapeOf(schema)[step];
  return Object.keys(shapeOf(schema));
}

function shapeOf(schema: unknown): Record<string, unknown> {
  const inner = unwrapped(schema);
  return (inner as { shape?: Record<string, unknown> }).shape ?? {};
}

function elementOf(schema: unknown): unknown {
  return (unwrapped(schema) as { element?: unknown }).element;
}

/** Removes the wrappers default() and prefault(). */
function unwrapped(schema: unknown): object {
  let current = schema as { unwrap?: () => unknown; element?: unknown };
  while (typeof current.unwrap === 'function' && current.element === undefined) {
    current = current.unwrap() as typeof current;
  }
  return current;
}

function tell(fault: Fault, document: Document, lines: LineCounter, file: string): string {
  const name = fault.path.reduce<string>(
    (text, step) => (typeof step === 'number' ? `${text}[${step}]` : text === '' ? step : `${text}.${step}`),
    '',
  );
  return `${place(file, lines, offsetOf(fault, document))}: ${name === '' ? '' : `${name}: `}${fault.message}`;
}

/** Position of the fault in the text. For a missing key: the begin of the mapping that should have it. */
function offsetOf(fault: Fault, document: Document): number {
  for (let length = fault.path.length; length >= 0; length -= 1) {
    const path = fault.path.slice(0, length);
    const key = path.at(-1);
    if (fault.atKey && length === fault.path.length) {
      const parent = length === 1 ? document.contents : document.getIn(path.slice(0, -1), true);
      const pair = isMap(parent)
        ? parent.items.find((item) => isScalar(item.key) && item.key.value === key)
        : undefined;
      if (isScalar(pair?.key) && pair.key.range) return pair.key.range[0];
    }
    const node = length === 0 ? document.contents : document.getIn(path, true);
    const range = (node as { range?: readonly number[] | null } | null | undefined)?.range;
    if (range?.[0] !== undefined) return range[0];
  }
  return 0;
}

function place(path: string, lines: LineCounter, offset: number): string {
  const { line, col } = lines.linePos(offset);
  return `${path}:${Math.max(line, 1)}:${Math.max(col, 1)}`;
}

function invalid(faults: readonly string[]): OdmoeError {
  const shown = faults.slice(0, FAULTS_SHOWN_LIMIT);
  if (faults.length > shown.length) shown.push(`and ${faults.length - shown.length} more`);
  return new OdmoeError('CONFIG_INVALID', shown.join('\n'));
}
