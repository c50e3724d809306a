import { drawScenario } from '../../simulator/faults/draw-scenario.js';
import { ReferenceAnswers } from '../../simulator/faults/reference-answers.js';
import { runScenario } from '../../simulator/faults/run-scenario.js';
import { OperationLog } from '../../simulator/timing/operation-log.js';
import { timingDiagram } from '../../simulator/timing/timing-diagram.js';

/** The timing diagram of a seed's history until it is calm, as SVG text: what each node was busy with, and which faults there were. */
export async function drawHistory(seed: number): Promise<string> {
  const scenario = drawScenario(seed);
  const log = new OperationLog(true);
  const references = new ReferenceAnswers();
  try {
    await runScenario(scenario, references, 0, log);
  } finally {
    await references.dispose();
  }
  for (const { kind, node, atMs, forMs } of scenario.faults) {
    const place = { position: -1, layer: -1, givenUp: false };
    log.add({ ...place, node, kind: 'fault', label: kind, fromMs: atMs, toMs: atMs + Math.max(1, forMs) });
  }
  const lanes = scenario.nodes.map(({ settings }) => settings.id);
  const title = `seed ${seed}, ${scenario.model}, until ${scenario.calmMs} ms`;
  return timingDiagram(log.operations, lanes, { title, beginMs: 0, endMs: scenario.calmMs, positions: null });
}
