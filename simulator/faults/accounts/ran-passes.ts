import type { Execute } from '../../../shared/wire/messages.js';
import type { Recorded, TappedRow } from './recorder.js';

/** Rows of one sequence in a pass of main. */
export interface RanRows {
  /** The number of the sequence in messages. */
  sequence: number;
  /** The number of the sequence at the device: a new one after the sequence has given its memory back. */
  created: number;
  position: number;
  tokenIds: readonly number[];
  /** Index of its first row among the rows of the pass. */
  firstRow: number;
}

/** A pass that main ran through all its layers, and the executes that main sent for it. */
export interface JointPass {
  members: readonly RanRows[];
  /** By layer: each row's experts, by rank. */
  choices: readonly (readonly (readonly number[])[])[];
  executes: readonly { worker: string; execute: Execute }[];
  /** Index in the record where it began, and where each router chose. */
  begunAt: number;
  chosenAt: readonly number[];
  /** Index in the record of its last execute. */
  endedAt: number;
}

/** A pass as main's device ran it. */
interface DevicePass {
  rows: readonly TappedRow[];
  choices: (readonly number[][])[];
  begunAt: number;
  chosenAt: number[];
}

/** Executes of one pass. */
interface AskedPass {
  executes: { worker: string; execute: Execute }[];
  lastLayer: number;
  /** Index in the record of the first execute, and of the last. */
  begunAt: number;
  endedAt: number;
}

/** Passes with the sequence numbers of messages. */
export interface RanPasses {
  passes: JointPass[];
  /** Sequences that cannot be distinguished because others ran almost alike, and sequences with rows in a failed pass. */
  unsure: ReadonlySet<number>;
  problems: string[];
}

/** The main whose passes are counted. */
export interface CountedMain {
  /** Its host. */
  readonly host: string;
  /** Number of expert layers. */
  readonly layers: number;
  /** Logical caches may choose other experts than routers do: executes then tell which. */
  readonly hasLogicalCaches: boolean;
}

/**
 * Assigns executes to passes of main's device, and so the device's sequences to those of the messages. A pass and its executes have the same
 * rows at the same positions, and for each row the same experts in each layer, unless logical caches choose: no other common information exists.
 * Passes that did not run through all layers are left out with their executes.
 */
export function ranPasses(
  events: readonly Recorded[],
  { host: main, layers, hasLogicalCaches }: CountedMain,
): RanPasses {
  const compared = (rows: ShapedRow[]): ShapedRow[] => (hasLogicalCaches ? rows.map(withoutExperts) : rows);
  const byShape = new Map<string, Compared<AskedPass>[]>();
  for (const pass of askedPasses(events, main)) {
    const rows = compared(rowsAsked(pass));
    const shape = shapeOf(rows);
    byShape.set(shape, [...(byShape.get(shape) ?? []), { pass, rows }]);
  }
  const begun = devicePasses(events);
  const ran = begun.filter(({ choices }) => choices.length === layers);
  const alike = ran.map((pass) => {
    const device = { pass, rows: compared(rowsRun(pass)) };
    const asked = byShape.get(shapeOf(device.rows)) ?? [];
    return { device, asked: asked.filter(({ pass: { begunAt } }) => isBetween(begunAt, pass)) };
  });
  const { names, unsure } = namesOf(alike);
  for (const { rows, choices } of begun)
    if (choices.length < layers) for (const { sequence } of rows) unsure.add(names.get(sequence) ?? -1);
  const problems: string[] = [];
  const taken = new Set<AskedPass>();
  const passes = alike.flatMap(({ device: { pass: device }, asked }): JointPass[] => {
    const members = membersRun(device, names);
    const free = asked.map(({ pass }) => pass).filter((pass) => !taken.has(pass));
    const pass = free.find((one) => isOf(one, members)) ?? free[0];
    if (pass !== undefined) {
      taken.add(pass);
      const choices = hasLogicalCaches ? choicesAsked(pass, members, layers) : device.choices;
      return [{ ...device, choices, members, executes: pass.executes, endedAt: pass.endedAt }];
    }
    const positions = device.rows.map(({ position }) => position).join(' ');
    problems.push(`of a pass at positions ${positions} executes ask for something else than its routers chose`);
    return [];
  });
  return { passes, unsure, problems };
}

/** The experts that executes ask for, by layer and row of the pass. */
function choicesAsked({ executes }: AskedPass, members: readonly RanRows[], layers: number): number[][][] {
  const rows = new Map(
    members.flatMap(({ sequence, position, tokenIds, firstRow }) =>
      tokenIds.map((_, index) => [`${sequence} ${position + index}`, firstRow + index] as const),
    ),
  );
  const choices = Array.from({ length: layers }, () => Array.from(rows, (): number[] => []));
  for (const { execute } of executes)
    for (const { expert, whose, position } of pairsOf(execute))
      choices[execute.layer]?.[rows.get(`${whose} ${position}`) ?? -1]?.push(expert);
  return choices;
}

/** Executes are sent after the first router has chosen and before the second one has. */
function isBetween(at: number, { chosenAt }: DevicePass): boolean {
  return at > (chosenAt[0] ?? Infinity) && at < (chosenAt[1] ?? Infinity);
}

function isOf({ executes }: AskedPass, members: readonly RanRows[]): boolean {
  const [first] = executes;
  return first?.execute.pass.sequence === members[0]?.sequence;
}

function devicePasses(events: readonly Recorded[]): DevicePass[] {
  const passes = new Map<number, DevicePass>();
  for (const [index, event] of events.entries()) {
    if (event.kind === 'pass') passes.set(event.pass, { rows: event.rows, choices: [], begunAt: index, chosenAt: [] });
    if (event.kind !== 'choice') continue;
    const pass = passes.get(event.pass);
    pass?.choices.push(event.experts);
    pass?.chosenAt.push(index);
  }
  return [...passes.values()];
}

/** If the layers start again from the first, a new pass has begun. */
function askedPasses(events: readonly Recorded[], main: string): AskedPass[] {
  const passes: AskedPass[] = [];
  const open = new Map<string, AskedPass>();
  for (const [index, event] of events.entries()) {
    if (event.kind !== 'message' || event.way !== 'sent' || event.from !== main || event.message.kind !== 'execute')
      continue;
    const { execute } = event.message;
    const key = `${execute.pass.sequence} ${execute.pass.position}`;
    let pass = open.get(key);
    if (pass === undefined || execute.layer < pass.lastLayer) {
      pass = { executes: [], lastLayer: 0, begunAt: index, endedAt: index };
      passes.push(pass);
      open.set(key, pass);
    }
    pass.lastLayer = execute.layer;
    pass.endedAt = index;
    pass.executes.push({ worker: event.to, execute });
  }
  return passes;
}

/** A row by its position and the experts of each of its layers; `whose`: its sequence. */
interface ShapedRow {
  whose: number;
  position: number;
  experts: string[];
}

/** A pass of main's device or its executes, and the rows by which they are compared. */
interface Compared<Pass> {
  readonly pass: Pass;
  readonly rows: readonly ShapedRow[];
}

function withoutExperts(row: ShapedRow): ShapedRow {
  return { ...row, experts: [] };
}

function rowsRun({ rows, choices }: DevicePass): ShapedRow[] {
  return rows.map(({ sequence, position }, row) => ({
    whose: sequence,
    position,
    experts: choices.flatMap((ofLayer, layer) => (ofLayer[row] ?? []).map((expert) => `${layer}/${expert}`)),
  }));
}

function rowsAsked({ executes }: AskedPass): ShapedRow[] {
  const rows = new Map<string, ShapedRow>();
  for (const { execute } of executes)
    for (const { expert, whose, position } of pairsOf(execute)) {
      const key = `${whose} ${position}`;
      const row = rows.get(key) ?? { whose, position, experts: [] };
      row.experts.push(`${execute.layer}/${expert}`);
      rows.set(key, row);
    }
  return [...rows.values()];
}

/** Each pair of expert and row that the execute asks for. */
export function pairsOf({ rows, experts }: Execute): { expert: number; whose: number; position: number }[] {
  const places = rows.flatMap(({ sequence, position, rows: count }) =>
    Array.from({ length: count }, (_, row) => ({ whose: sequence, position: position + row })),
  );
  return experts.flatMap(({ expert, rows: indexes }) =>
    (indexes.length === 0 ? places : indexes.flatMap((index) => places[index] ?? [])).map((place) => ({
      expert,
      ...place,
    })),
  );
}

/** A key that is the same for the same rows, from any sequences and in any order. */
function shapeOf(rows: readonly ShapedRow[]): string {
  return [...membersOf(rows).values()].sort().join('; ');
}

/** For each sequence, a text of its rows. */
function membersOf(rows: readonly ShapedRow[]): Map<number, string> {
  const members = new Map<number, string[]>();
  for (const { whose, position, experts } of rows)
    members.set(whose, [...(members.get(whose) ?? []), `${position}: ${[...experts].sort().join(' ')}`]);
  return new Map([...members].map(([whose, described]) => [whose, described.sort().join(', ')]));
}

/** Finds the message numbers of the device's sequences: the numbers that fit in every pass. */
function namesOf(alike: readonly { device: Compared<DevicePass>; asked: readonly Compared<AskedPass>[] }[]): {
  names: Map<number, number>;
  unsure: Set<number>;
} {
  const candidates = new Map<number, Set<number>>();
  for (const { device, asked } of alike) {
    const members = asked.flatMap(({ rows }) => [...membersOf(rows)]);
    for (const [created, runs] of membersOf(device.rows)) {
      const fitting = members.flatMap(([sequence, asks]) => (asks === runs ? [sequence] : []));
      const before = candidates.get(created);
      candidates.set(created, new Set(before === undefined ? fitting : fitting.filter((one) => before.has(one))));
    }
  }
  const names = new Map<number, number>();
  const unsure = new Set<number>();
  for (const [created, fitting] of [...candidates].sort(([, left], [, right]) => left.size - right.size)) {
    const taken = new Set(sharing(created, alike).map((other) => names.get(other)));
    const left = [...fitting].filter((one) => !taken.has(one));
    const [name] = left;
    if (name !== undefined) names.set(created, name);
    if (left.length > 1) for (const one of left) unsure.add(one);
  }
  return { names, unsure };
}

/** Other sequences in the same passes. */
function sharing(created: number, passes: readonly { device: Compared<DevicePass> }[]): number[] {
  return passes.flatMap(({ device: { pass } }) => {
    const { rows } = pass;
    const members = [...new Set(rows.map(({ sequence }) => sequence))];
    return members.includes(created) ? members.filter((other) => other !== created) : [];
  });
}

function membersRun({ rows }: DevicePass, names: ReadonlyMap<number, number>): RanRows[] {
  const members: (RanRows & { tokenIds: number[] })[] = [];
  for (const [row, { sequence, position, tokenId }] of rows.entries()) {
    const open = members.at(-1);
    if (open?.created === sequence) open.tokenIds.push(tokenId);
    else
      members.push({
        sequence: names.get(sequence) ?? -1,
        created: sequence,
        position,
        tokenIds: [tokenId],
        firstRow: row,
      });
  }
  return members;
}
