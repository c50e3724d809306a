// Rules of the linter (.oxlintrc.json) that no library has.

/** The functions of Math whose bits no standard pins. */
const UNPINNED = new Set([
  ...['exp', 'expm1', 'log', 'log1p', 'log2', 'log10', 'pow', 'cbrt', 'hypot'],
  ...['sin', 'cos', 'tan', 'asin', 'acos', 'atan', 'atan2'],
  ...['sinh', 'cosh', 'tanh', 'asinh', 'acosh', 'atanh'],
]);
const PINNED_INSTEAD = 'native tokenWeights and logSumExp for an answer, shared/base/arithmetic for a decision';

/** A literal that is spread into another one, or into the properties of an element, hides members on one line. */
const spreadLiterals = {
  create: (context) => {
    const check = (outer, spread, literal) => {
      if (spread.argument.type === literal)
        context.report({ node: spread, message: `${outer}: write these members one by one where they are spread` });
    };
    return {
      SpreadElement: (node) => {
        if (node.parent.type === 'ObjectExpression') check('a literal in an object', node, 'ObjectExpression');
        if (node.parent.type === 'ArrayExpression') check('a literal in a list', node, 'ArrayExpression');
      },
      JSXSpreadAttribute: (node) => check('a literal in an element', node, 'ObjectExpression'),
    };
  },
};

/** All that enters an answer or a daemon's decision must be the same on every machine. */
const pinnedArithmetic = {
  create: (context) => ({
    MemberExpression: (node) => {
      const name = node.computed ? node.property.value : node.property.name;
      if (node.object.type === 'Identifier' && node.object.name === 'Math' && UNPINNED.has(name))
        context.report({ node, message: `the bits of Math.${name} differ from machine to machine: ${PINNED_INSTEAD}` });
    },
    BinaryExpression: (node) => {
      if (node.operator === '**' && node.right.type !== 'Literal')
        context.report({
          node,
          message: 'the bits of a power differ from machine to machine: use power of shared/base/arithmetic, or shift',
        });
    },
  }),
};

export default {
  meta: { name: 'odmoe' },
  rules: { 'spread-literals': spreadLiterals, 'pinned-arithmetic': pinnedArithmetic },
};
