"""Plain C99 for every integer operator: any CPU, nothing but integers, one function a step."""
