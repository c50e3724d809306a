import { readFileSync } from 'node:fs';
import { createRequire } from 'node:module';
import type { Page } from 'playwright-core';

interface AxeResult {
  violations: { id: string; nodes: { target: unknown[]; failureSummary: string }[] }[];
}

const SOURCE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8');
/** Levels A and AA of WCAG, and what axe recommends besides. */
const RULES = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice'];

/** What axe finds wrong in the page, one line an element; empty: nothing. */
export async function axeFaults(page: Page): Promise<string[]> {
  await page.evaluate(SOURCE);
  const { violations } = await page.evaluate<AxeResult>(
    `axe.run(document, { runOnly: ${JSON.stringify(RULES)}, resultTypes: ['violations'] })`,
  );
  return violations.flatMap(({ id, nodes }) =>
    nodes.map(({ target, failureSummary }) => `${id}: ${target.join(' ')}: ${failureSummary}`),
  );
}
